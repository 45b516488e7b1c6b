"""The text of a sweep file over the problems of a file or a data set."""

import json
import re
from collections.abc import Iterator, Mapping

from rltune.cli.init_task.generated import env_lines
from rltune.cli.init_task.problems import FREE_TOKENS, ROOM, Asked, Problems
from rltune_envs.verified_task.guess import Guess

_READS = {
    "number": "the last number of a response counts",
    "boxed": r"the last \boxed{} of a response counts",
    "multiple_choice": "the letter that a response gives counts",
    "exact": "the whole response counts; case does not",
}
_MAX_TASKS = 256  # of a gate: standard error 0.03


def sweep_text(asked: Asked, guess: Guess | None, problems: Problems) -> str:
    """Return the sweep file: GRPO with and without its division, with comments that explain it."""
    generated = [_noted(text, note) for text, note in env_lines(problems)] if not guess else []
    lines = [
        *(_env_lines(guess, problems) if guess else generated),
        *(_of_small_policy(asked, problems) if asked.model is None else _of_model(asked, problems)),
        *_gate_lines(problems.sizes),
    ]
    is_small = asked.model is None
    return _SWEEP.format(
        name=asked.target.name,
        file=asked.file.name,
        sweep=asked.sweep.name,
        held="\n".join(lines),
        profiles=_PROFILES["small" if is_small else "model"],
    )


def _noted(text: str, note: str) -> str:
    """Return a line of YAML with a comment in the column of comments; as it is without one."""
    return text if not note else f"{text:<{_NOTES - 1}} # {note}"


def _env_lines(guess: Guess, problems: Problems) -> Iterator[str]:
    section, kind = problems.section, guess.verifier
    yield f"    train: {_yaml(section['train'])}"
    yield _noted("    template: |-", "what the policy reads, with columns of the row in braces")
    yield from (f"      {text}" for text in section["template"].split("\n"))
    yield f"    answer_column: {_yaml(guess.answer)}"
    if guess.choices:
        yield f"    choices_column: {_yaml(guess.choices)}"
    verifier = "{kind: exact, ignore_case: true}" if kind == "exact" else kind
    reads = f"{_READS[kind]}; docs/tasks.md has others" if kind in _READS else "it gives the score"
    yield _noted(f"    verifier: {verifier}", reads)
    yield _noted(
        f"    train_tasks: {problems.sizes['train']}", "without those of heldout_share, test_share"
    )


def _of_model(asked: Asked, problems: Problems) -> Iterator[str]:
    room = problems.longest_prompt + FREE_TOKENS + ROOM
    yield f"  policy.model: {_yaml(str(asked.model))}"
    yield _noted(f"  rollout.max_response_tokens: {FREE_TOKENS}", "longer responses are cut")
    yield _noted(f"  rollout.max_context: {room}", "bytes of the longest prompt, and a response")


def _of_small_policy(asked: Asked, problems: Problems) -> Iterator[str]:
    longest = problems.longest_response
    response = FREE_TOKENS if longest is None else longest + 1
    room = problems.context
    yield "  # It reads any text, byte by byte, and knows how answers look: it shows that the task"
    yield "  # runs. For results name a language model, and give its responses 256 tokens or more."
    yield f"  policy.model: {_yaml(str(asked.policy))}"
    yield _noted(f"  rollout.max_response_tokens: {response}", "bytes; longer responses are cut")
    yield _noted(f"  rollout.max_context: {room}", "bytes of a prompt and its response")
    yield _noted("  rollout: {groups: 16, group_size: 8}", "problems a step, and responses to each")
    yield "  optim: {lr: 3.0e-4, mini_batch_size: 64}"
    yield _noted("  budget.steps: 20", "training steps of a trial: minutes on two cores")


def _gate_lines(sizes: Mapping[str, int]) -> Iterator[str]:
    n, n_test = min(_MAX_TASKS, sizes["heldout"]), min(_MAX_TASKS, sizes["test"])
    yield "  gate:"
    yield _noted(f"    tasks: {n}", f"of {sizes['heldout']} held-out problems")
    yield _noted(f"    test_tasks: {n_test}", "read by `rltune test` only")
    yield _noted("    every: 10", "steps between held-out evaluations")
    yield _noted("    temperature: 1.0", "of evaluation samples, as in training")


def _yaml(text: str) -> str:
    """Return a text as YAML has it: as it is where that is safe, else in quotes."""
    is_plain = re.fullmatch(r"[A-Za-z][\w./-]*", text) and text.lower() not in _WORDS
    return text if is_plain else json.dumps(text, ensure_ascii=False)


_NOTES = 34  # column of comments
_WORDS = ("true", "false", "yes", "no", "on", "off", "null", "y", "n")
_SWEEP = """\
# A sweep over the problems of {file}, written by `rltune init --task`. Change what you like.
#   rltune play {sweep}     read problems and answer them
#   rltune check {sweep}    is the axis the only difference?
#   rltune sweep {sweep}    run it; `rltune export` then draws it

name: {name}
question: Does dividing by the spread of a group's rewards help on these problems?
base: sokoban                     # for every section but env, which is replaced below

hold:
  env:
    kind: verified                # problems, each graded by a verifier
    prompt: natural
{held}
  loss.kl_loss_coef: 0.0          # no tie to the start
  loss.use_kl_loss: false
  loss.kl_type: k2
  loss.kl_target: null
  loss.entropy_coeff: 0.0
  attribution.kind: none
  advantage.shaping: {{gtpo_beta: 0.0, hicra_alpha: 0.0}}
  rollout_correction.kind: none
  rollout_filter:                 # off: value 1.0 with include_zero
    strategy: top_p
    value: 1.0
    mode: softmax
    metric: reward_variance
    type: largest
    include_zero: true
    on_drop: drop
    loss_scaling: none

axis:                             # the one difference; any other key can be the axis
  key: advantage.kind
  values: [grpo, grpo_center]     # with the division, and without it (Dr. GRPO)
  control: grpo

seeds: [0, 1, 2]                  # fewer support no claim
metric: {{name: heldout/success_rate, mode: max}}
profiles: {profiles}
"""
_PROFILES = {
    "small": "{default: laptop, allowed: [laptop]}",
    "model": "{default: smollm2, allowed: [smollm2, gpu, paper]}  # smollm2: a glance on CPU cores",
}
