"""A config of a trial that takes seconds, by dotted keys."""

from rltune.spec.schema.trial import TrialConfig

DEFAULTS = {
    "env.prompt": "compact",
    "policy.model": "tiny",
    "rollout.groups": 2,
    "rollout.group_size": 4,
    "rollout.max_response_tokens": 4,
    "rollout.max_context": 120,
    "optim.lr": 1e-3,
    "optim.mini_batch_size": 4,
    "optim.micro_batch_size": 2,
    "critic.lr": 1e-2,
    "gate.every": 2,
    "gate.tasks": 5,
    "gate.temperature": 1.0,
    "budget.steps": 4,
    "checkpoint.every": 2,
    "advantage": {"kind": "grpo"},
}


def config_of(**changes):
    """Build a config from dotted keys; `__` stands for the dot."""
    tree = {}
    for key, value in {**DEFAULTS, **{k.replace("__", "."): v for k, v in changes.items()}}.items():
        *path, leaf = key.split(".")
        node = tree
        for part in path:
            node = node.setdefault(part, {})
        node[leaf] = value
    return TrialConfig.model_validate(tree)
