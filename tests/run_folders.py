"""Hand-made run folders, written through the store's own functions: no training."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from rltune.comparability.check import check_sweep
from rltune.spec.expand import expand
from rltune.spec.load import LoadedSweep, load_sweep
from rltune.spec.plan import plan_json
from rltune.store.failure import TrialFailure
from rltune.store.files import to_json, write_json_atomic, write_text_atomic
from rltune.store.jsonl import append_jsonl_many
from rltune.store.rundir import RunDir, TrialDir
from rltune.types import RowStatus, TrialResult, TrialSpec, TrialStatus

CONFIG = {
    "configs/sokoban.yaml": """
policy: {model: tiny}
rollout: {groups: 2, group_size: 4, max_response_tokens: 8, max_context: 256}
optim: {mini_batch_size: 4, micro_batch_size: 4}
gate: {tasks: 10}
""",
    "configs/profiles/laptop.yaml": "env: {prompt: compact}\n",
    "configs/protocols/figure3.yaml": """
name: figure3
title: A figure
free:
  loss.kl_loss_coef: an axis
  loss.use_kl_loss: its switch
""",
}
SWEEP = """
name: kl
title: KL constraint
question: How strongly may the policy be tied to its start?
base: sokoban
protocol: figure3
hold:
  budget.steps: 20
  loss.kl_type: k2
  loss.entropy_coeff: 0.0
  loss.kl_target: null
  attribution.kind: none
  advantage.shaping: {gtpo_beta: 0.0, hicra_alpha: 0.0}
  rollout_correction.kind: none
  rollout_filter: {strategy: top_p, value: 1.0, include_zero: true}
axis:
  key: loss.kl_loss_coef
  values: [0.0, 0.1]
  control: 0.0
  coupled:
    - key: loss.use_kl_loss
      rule: "value > 0"
      why: with coefficient 0 no reference forward pass is run
seeds: [0, 1, 2]
profiles: {default: laptop, allowed: [laptop]}
"""
FLOOR = {"kind": "exact", "rate": 0.184, "successes": None, "n": None}
TASKS = {"heldout_floor": FLOOR, "heldout_ceiling": 0.95, "heldout": [{}] * 10, "train": []}
PROVENANCE = {
    "commit": "c0ffee",
    "dirty": False,
    "diff_sha256": "",
    "source_sha256": "s",
    "versions": {"python": "3.11.0", "torch": "2.6"},
    "device": "cpu",
    "cpu_model": "a processor",
    "dtype": "float32",
    "engine": "torch",
    "threads": 1,
    "weights_sha256": "w",
    "manifest_sha256": "m",
}
START = 1_800_000_000.0  # when every trial began
STEP_S = 2.0


def write_sweep(folder: Path, text: str = SWEEP) -> Path:
    """Write a sweep file and the configs that it names; return its path."""
    for name, content in {**CONFIG, "sweeps/kl.yaml": text}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content.lstrip(), encoding="utf-8")
    return folder / "sweeps" / "kl.yaml"


def write_proof(run: RunDir, loaded: LoadedSweep) -> None:
    """Write what the check of the keys finds in a sweep."""
    write_json_atomic(run.comparability, {**to_json(check_sweep(loaded)), "allow_confounded": None})


@dataclass(eq=False)
class FolderWriter:
    """Writes one run folder, trial by trial."""

    root: Path
    text: str = SWEEP
    seeds: Sequence[int] | None = None
    tasks: int = 10
    loaded: LoadedSweep = field(init=False)
    run: RunDir = field(init=False)
    specs: tuple[TrialSpec, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.plan(load_sweep(write_sweep(self.root, self.text), seeds=self.seeds))

    def plan(self, loaded: LoadedSweep, *, tasks: object = TASKS) -> None:
        """Write the run folder of a sweep, and go on with its trials."""
        self.loaded, self.specs = loaded, expand(loaded)
        self.run = RunDir(self.root / "runs" / loaded.run_name).create()
        write_text_atomic(self.run.sweep, loaded.text)
        write_proof(self.run, loaded)
        write_json_atomic(self.run.plan, plan_json(loaded, self.specs, tasks=None))
        write_json_atomic(self.run.tasks(), tasks)

    def spec(self, label: str, seed: int) -> TrialSpec:
        return next(s for s in self.specs if s.condition == label and s.seed == seed)

    def start(self, spec: TrialSpec, **provenance: object) -> TrialDir:
        trial = self.run.trial(spec.trial_id).create()
        trial.write_spec(spec)
        write_json_atomic(trial.provenance, {**PROVENANCE, **provenance})
        return trial

    def train(self, spec: TrialSpec, gates: dict[int, int], *, steps: int, **extra: object) -> None:
        """Write metrics up to a step; gates is step -> solved of the held-out tasks."""
        trial = self.start(spec)
        rows = []
        for step in range(steps + 1):
            row: dict[str, object] = {"step": step, "time": START + STEP_S * step}
            if step:
                row |= {
                    "rollout/task_hash": f"{spec.seed}-{step}",
                    "rollout/task_digests": f"{spec.seed}.{step}.1 {spec.seed}.{step}.2",
                    "rollout/sampled_hash": f"{spec.seed}-{step}",
                    "budget/rollouts": 8.0 * step,
                    "budget/generated_tokens": 200.0 * step,
                    "budget/optimizer_steps": 2.0 * step,
                    "budget/policy_updates": 2.0 * step,
                    "budget/critic_updates": 0.0,
                    "timing_s/collect": 1.25,
                    "timing_s/update": 0.75,
                    "perf/tokens_per_s": 160.0,
                }
            if step in gates:
                row["heldout/success_rate"] = gates[step] / self.tasks
            rows.append({**row, **extra})
        append_jsonl_many(trial.metrics, rows)
        append_jsonl_many(trial.heldout, [self._gate(step, n) for step, n in gates.items()])

    def finish(self, spec: TrialSpec, gates: dict[int, int], *, stopped: str = "") -> None:
        """Write a whole trial: gates at 0, 10 and 20; or one that stopped at its last gate."""
        last = max(gates)
        self.train(spec, gates, steps=last)
        best = max(gates, key=lambda step: (gates[step], -step))
        self.run.trial(spec.trial_id).write_done(
            TrialResult(
                trial_id=spec.trial_id,
                status=TrialStatus.STOPPED_EARLY if stopped else TrialStatus.DONE,
                reason=stopped,
                final_step=last,
                best_step=best,
                heldout_metric=gates[best] / self.tasks,
                base_metric=gates[0] / self.tasks,
                final_metric=gates[last] / self.tasks,
                pool_metric=0.5,
                metrics_sha256="",
                train_s=40.0,
                total_s=44.0,
            )
        )

    def fail(self, spec: TrialSpec, failure: TrialFailure) -> None:
        self.start(spec)
        self.run.trial(spec.trial_id).write_failed(failure)

    def _gate(self, step: int, solved: int) -> dict[str, object]:
        success = [1] * solved + [0] * (self.tasks - solved)
        return {
            "step": step,
            "tasks_sha256": "t",
            "temperature": 0.5,
            "do_sample": True,
            "n": self.tasks,
            "success": success,
            "reward": [float(s) for s in success],
        }


CONTROL, TREATED = "kl_loss_coef=0.0", "kl_loss_coef=0.1"


def finished_sweep(root: Path) -> FolderWriter:
    """Two conditions, three seeds, all finished; the KL cost holds learning back.

    control start 4 4 4, final 6 7 8; treated start 4 4 4, final 2 3 3 (best 5 5 5, of ten).
    """
    writer = FolderWriter(root)
    for name, content in _finished_trials().items():
        path = writer.run.trials / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    for spec in writer.specs:
        writer.run.trial(spec.trial_id).create()
    return writer


@cache
def _finished_trials() -> dict[str, bytes]:
    """Write the trials of `finished_sweep` once; return what is in each file below `trials`."""
    with TemporaryDirectory() as folder:
        writer = FolderWriter(Path(folder))
        for seed, last in enumerate((6, 7, 8)):
            writer.finish(writer.spec(CONTROL, seed), {0: 4, 10: 5, 20: last})
        for seed, last in enumerate((2, 3, 3)):
            writer.finish(writer.spec(TREATED, seed), {0: 4, 10: 5, 20: last})
        below = writer.run.trials
        files = [path for path in below.rglob("*") if path.is_file()]
        return {str(path.relative_to(below)): path.read_bytes() for path in files}


CRASH = TrialFailure(RowStatus.CRASH, "RuntimeError: out of memory (rltune/x.py:3)", "", 7, 1)


def mixed_sweep(root: Path) -> FolderWriter:
    """Done, failed, under way, and three never started."""
    writer = FolderWriter(root)
    writer.finish(writer.spec(CONTROL, 0), {0: 4, 10: 5, 20: 6})
    writer.fail(writer.spec(TREATED, 0), CRASH)
    writer.train(writer.spec(CONTROL, 1), {0: 4, 10: 5}, steps=10)
    return writer
