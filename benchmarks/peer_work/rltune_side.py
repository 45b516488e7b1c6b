"""rltune's side of `peers.py`: a trial of the work in this process, one optimiser step a turn.

python -m peer_work.rltune_side MODEL WORK STEPS MICRO
"""

import sys
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import yaml
from jobs import job_of
from peer_work.work import GRAD_CLIP, LR, WEIGHT_DECAY, WORKS, Side, Work

from rltune.errors import InterruptedRun
from rltune.spec.expand import expand
from rltune.spec.load import load_sweep
from rltune.spec.schema.trial import TrialConfig
from rltune.store.jsonl import read_metrics
from rltune.store.rundir import TrialDir
from rltune.trainer.loop import train


def sweep_of(model: str, work: Work, steps: int) -> dict[str, object]:
    """Return the sweep file of a work: GRPO without KL, filter and shaping, one optimiser step."""
    arguments = {
        "prompt": work.prompt,
        "turns": work.turns,
        "observation": work.observation,
    }
    return {
        "name": "peers",
        "title": "The work of a peer",
        "question": "How long does a step take?",
        "base": "sokoban",
        "hold": {
            "env": {
                "kind": "custom",
                "factory": "peer_work.letters:Letters",
                "prompt": "compact",
                "train_tasks": 1024,
                "arguments": arguments,
            },
            "policy.model": model,
            "advantage": "grpo",
            "advantage.shaping": {"gtpo_beta": 0.0, "hicra_alpha": 0.0},
            "rollout.groups": work.groups,
            "rollout.group_size": work.group_size,
            "rollout.max_response_tokens": work.sampled,
            "optim.mini_batch_size": work.rows,
            "optim.lr": LR,
            "optim.weight_decay": WEIGHT_DECAY,
            "optim.grad_clip": GRAD_CLIP,
            "gate.every": 10**6,
            "gate.tasks": 8,
            "gate.test_tasks": 8,
            "checkpoint.every": 10**6,
            "budget.steps": steps + 1,
            "loss.use_kl_loss": False,
            "loss.kl_loss_coef": 0.0,
            "loss.kl_type": "k2",
            "loss.kl_target": None,
            "attribution.kind": "none",
            "rollout_correction.kind": "none",
            "rollout_filter": {
                "strategy": "top_p",
                "value": 1.0,
                "mode": "softmax",
                "metric": "reward_variance",
                "type": "largest",
                "include_zero": True,
                "on_drop": "drop",
                "loss_scaling": "none",
            },
        },
        "axis": {"key": "loss.entropy_coeff", "values": [0.0, 0.01], "control": 0.0},
        "seeds": [0],
        "metric": {"name": "heldout/success_rate", "mode": "max"},
        "profiles": {"default": "laptop", "allowed": ["laptop"]},
    }


def main(model: str, name: str, steps: str, _: str) -> None:
    work, side, n_steps = WORKS[name], Side(), int(steps)
    with tempfile.TemporaryDirectory() as folder:
        sweep = Path(folder) / "peers.yaml"
        sweep.write_text(yaml.safe_dump(sweep_of(model, work, n_steps)))
        spec = expand(load_sweep(sweep))[0]
        config = TrialConfig.model_validate(dict(spec.config))
        trial = TrialDir(Path(folder) / spec.trial_id).create()
        job = job_of(config, trial, spec.config_hash)
        side.watch(job.policy.model)
        turns = Turns(side, trial, n_steps)
        with suppress(InterruptedRun):
            train(replace(job, should_stop=turns.next))


class Turns:
    """Ends one step and begins the next where the loop asks whether to stop."""

    def __init__(self, side: Side, trial: TrialDir, steps: int) -> None:
        self._side, self._trial, self._left = side, trial, steps
        self._generated = 0
        self._is_under_way = False

    def next(self) -> bool:
        """Return whether all steps are made."""
        if self._is_under_way:
            self._side.end(self._sampled)
        self._is_under_way = self._left > 0
        if self._is_under_way:
            self._left -= 1
            self._side.begin()
        return not self._is_under_way

    def _sampled(self) -> int:
        before = self._generated
        self._generated = int(read_metrics(self._trial.metrics).rows[-1]["budget/generated_tokens"])
        return self._generated - before


if __name__ == "__main__":
    main(*sys.argv[1:])
