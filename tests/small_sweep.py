"""A sweep small enough to train in seconds, and a policy for it."""

_SWEEP = """
name: small
title: Small
question: Does it run?
base: sokoban
hold:
  tracking.wandb: {wandb}
  env.train_tasks: {train_tasks}
  env.prompt: compact
{limits}  policy.model: {policy}
  rollout.groups: 2
  rollout.group_size: 2
  optim.mini_batch_size: 4
  optim.micro_batch_size: 4
  critic.warmup_steps: 1
  gate.every: {gate_every}
  gate.tasks: 4
  gate.test_tasks: {test_tasks}
  budget.steps: {steps}
  checkpoint.every: {checkpoint_every}
  loss.kl_type: k2
  loss.entropy_coeff: 0.0
  loss.kl_target: null
  attribution.kind: none
  advantage.shaping: {{gtpo_beta: 0.0, hicra_alpha: 0.0}}
  rollout_correction.kind: none
  rollout_filter:
    strategy: top_p
    value: 1.0
    mode: softmax
    metric: reward_variance
    type: largest
    include_zero: true
    on_drop: drop
    loss_scaling: none
axis:
  key: loss.kl_loss_coef
  values: {values}
  control: 0.0
  coupled:
    - {{key: loss.use_kl_loss, rule: "value > 0", why: one switch}}
seeds: {seeds}
metric: {{name: heldout/reward_mean, mode: max}}
profiles: {{default: laptop, allowed: [laptop]}}
"""


def small_sweep(
    *,
    policy,
    steps=2,
    gate_every=2,
    checkpoint_every=3,
    train_tasks=16,
    test_tasks=2,
    values="[0.0, 0.01, 0.1, 0.03]",
    seeds="[0]",
    wandb="disabled",
    turns=None,
):
    """Return the text of its file.

    With two turns of Sokoban in place of five a trial takes half the time.
    """
    limits = f"  env.max_turns: {turns}\n  env.max_actions: {2 * turns}\n" if turns else ""
    return _SWEEP.format(**locals())


def save_policy(folder):
    """Write an untrained policy of one layer to a folder, as a user's own model; return it."""
    import torch

    from rltune.policy.tiny import tiny_model, tiny_tokenizer

    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = tiny_model("sokoban", hidden_size=32, layers=1, heads=2)
    model.save_pretrained(folder)
    tiny_tokenizer("sokoban").save_pretrained(folder)
    return folder


def levels(count, width=5):
    """Return different solvable levels of one box, as a file has them."""
    rooms = []
    for i in range(count):
        floor = [" " * width for _ in range(width)]
        row, column = divmod(i, width)
        floor[row % width] = floor[row % width][:column] + "@" + floor[row % width][column + 1 :]
        floor.append("  $. ")
        floor.append(" " * width)
        lines = ["#" * (width + 2), *(f"#{line}#" for line in floor), "#" * (width + 2)]
        rooms.append("\n".join(lines))
    return "\n\n".join(rooms) + "\n"
