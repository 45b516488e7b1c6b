"""A policy at play, turn by turn: `rltune chat`, and the player of `rltune play --policy`."""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from rltune.analysis.lookup import find_trial
from rltune.cli.console import emit_json, warn
from rltune.cli.options import RUNS, Checkpoint, Json, NoCustomCode, RunFolder, RunsDir
from rltune.cli.play_turns import Outcome, finish, opening, turn
from rltune.errors import StoreError
from rltune.maths.streams import stream_seed
from rltune.rollout.engine import SamplingParams
from rltune.rollout.episode import Slot, play
from rltune.runner.process import prepare_for
from rltune.runner.trial import read_provenance
from rltune.spec.custom_code import import_paths, refuse_paths
from rltune.spec.schema.trial import TrialConfig
from rltune.spec.trial_reference import checkpoint_of, is_reference, looking_in
from rltune.store.inputs import base_of, within
from rltune.store.rundir import TrialDir
from rltune.trainer.custom_env import naming_custom_env
from rltune.trainer.tasks import env_maker
from rltune_envs.base import Step, TextEnv
from rltune_envs.splits import Manifest

if TYPE_CHECKING:
    from rltune.policy.load import Policy
    from rltune.trainer.models.export import Trained

_MAX_CONTEXT = 8192  # tokens; a model may claim more than there is memory for


class PolicyPlayer:
    """A policy that plays one task after the other, through the rollout path of training.

    Args:
        policy: What plays.
        config: Its limits.
        env: What is played.
        temperature: Of the sampling; 0 is greedy, None the config's.
        is_sweep: Whether the context limit is the config's; else it is the model's own.

    """

    def __init__(
        self,
        policy: "Policy",
        config: TrialConfig,
        env: TextEnv,
        *,
        temperature: float | None,
        is_sweep: bool,
    ) -> None:
        from rltune.rollout.torch_engine import TorchEngine  # torch

        self._env = env
        self._policy = policy
        self._engine = TorchEngine(policy.decoder())
        limit = getattr(policy.model.config, "max_position_embeddings", None)
        room = min(limit or _MAX_CONTEXT, _MAX_CONTEXT)
        rollout = config.rollout
        self._params = SamplingParams(
            temperature=rollout.temperature if temperature is None else temperature,
            max_tokens=rollout.max_response_tokens,
            max_context=rollout.max_context if is_sweep else room,
        )
        self.turns: list[tuple[str, Step]] = []  # of the last task: response, what came of it

    def play(self, seed: int) -> Outcome:
        """Play one task, and print each turn as it happens."""
        shown = _Shown(self._env)
        (episode,) = play(
            [Slot(self._env.task(seed), 0, 0, stream_seed(seed, "play"))],
            make_env=lambda: cast(TextEnv, shown),
            renderer=self._policy.renderer,
            engine=self._engine,
            params=self._params,
        )
        self.turns = shown.turns
        steps = [step for _, step in shown.turns]
        if not (steps and steps[-1].has_ended):
            typer.echo("The context has no room left for another response.")
        return finish(self._env, seed, steps, failure_class=episode.failure_class)


class _Shown:
    """An environment that prints its turns and remembers them."""

    def __init__(self, env: TextEnv) -> None:
        self._env = env
        self.turns: list[tuple[str, Step]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def reset(self, *, seed: int) -> str:
        observation = self._env.reset(seed=seed)
        typer.echo(f"{opening(self._env, seed, observation)}\n")
        return observation

    def step(self, response: str) -> Step:
        step = self._env.step(response)
        self.turns.append((response, step))
        typer.echo(f"> {response}\n{turn(self._env, step)}")
        return step


def chat(
    trial: Annotated[
        str,
        typer.Argument(
            metavar="TRIAL",
            help="Trial: its folder, its id or the start of it, condition@seed, or "
            "trial:RUN/TRIAL[@STEP].",
            show_default=False,
        ),
    ],
    folder: RunFolder = None,
    runs_dir: RunsDir = RUNS,
    checkpoint: Checkpoint = "best",
    tasks: Annotated[
        int, typer.Option("--tasks", min=1, help="Number of held-out tasks, from the first on.")
    ] = 1,
    seed: Annotated[
        int | None,
        typer.Option("--seed", min=0, help="Seed of the first task, in place of held-out tasks."),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            "--temperature",
            min=0.0,
            help="Sampling temperature; 0 is greedy (default: the gate's).",
        ),
    ] = None,
    alone: Annotated[
        bool, typer.Option("--alone", help="Leave out the policy as it was before training.")
    ] = False,
    no_custom_code: NoCustomCode = False,
    as_json: Json = False,
) -> None:
    """Watch what a trial learned, turn by turn: the same tasks before and after training.

    Both draw with the same seeds. The environment is the trial's own.

    Example:
      rltune chat kl_loss_coef=0.01@0 --tasks 3
      rltune chat kl_loss_coef=0.01@0 --checkpoint latest --temperature 0
      rltune chat trial:mine-1a2b3c4d/kl_loss_coef=0.0-s0@20 --alone

    """
    source, which = _named(trial, folder, runs_dir, checkpoint)
    config = prepare_for(source)  # before torch is imported
    if no_custom_code:
        paths = import_paths(config.model_dump())
        refuse_paths((f"{source.config}: {key}", path) for key, path in paths)

    from rltune.trainer.final_test import checkpoint_step
    from rltune.trainer.models.export import Trained

    step = checkpoint_step(source, which)
    if source.read_done() is None:
        warn("The trial has not finished: its gate may still choose another checkpoint.")
    base = base_of(read_provenance(source), otherwise=Path.cwd())
    digest = source.read_spec().config_hash
    trained = Trained(TrialDir(source.path.absolute()), config, digest, base, step)
    seeds = _heldout_seeds(source, tasks) if seed is None else range(seed, seed + tasks)
    if len(seeds) < tasks:
        warn(f"{tasks} tasks were asked for; the trial has {len(seeds)} held-out tasks.")
    with naming_custom_env(config.env), within(base), looking_in(source.path.absolute()):
        sides = _play(trained, seeds, temperature=temperature, alone=alone, is_quiet=as_json)
    if as_json:
        emit_json({"trial_id": source.trial_id, "step": step, "sides": sides})
    else:
        typer.echo("\n".join(_summary(sides)))


@dataclass(frozen=True, slots=True)
class Side:
    """What one of the two policies did."""

    name: str  # `before` or `after`
    step: int  # training steps done
    tasks: list[dict[str, Any]]  # one for each task, with its turns


def _named(
    given: str, folder: Path | None, runs_dir: Path, checkpoint: str
) -> tuple[TrialDir, str]:
    """Return the trial that is named, and its checkpoint: a reference names both."""
    if not is_reference(given):
        return find_trial(given, folder, runs_dir), checkpoint
    found = checkpoint_of(given, Path.cwd(), "TRIAL")
    return TrialDir(found.trial), str(found.step)


def _heldout_seeds(trial: TrialDir, count: int) -> Sequence[int]:
    """Return the seeds of the first held-out tasks of a trial.

    Raises:
        StoreError: Its frozen tasks are gone, or were edited.

    """
    from rltune.trainer.final_test import read_manifest

    sha256 = str(read_provenance(trial).get("manifest_sha256", ""))
    manifest: Manifest = read_manifest(trial.path.absolute().parents[1], sha256)
    return [task.seed for task in manifest.heldout[:count]]


def _play(
    trained: "Trained",
    seeds: Sequence[int],
    *,
    temperature: float | None,
    alone: bool,
    is_quiet: bool,
) -> list[Side]:
    """Play the tasks, each before and after training; print them unless it is quiet."""
    players = list(_players(trained, temperature, alone=alone))
    sides = [Side(name, step, []) for name, step, _ in players]
    for seed in seeds:
        for side, (name, step, player) in zip(sides, players, strict=True):
            with _silence(is_quiet):
                typer.echo(f"=== {name} training, step {step} ===")
                outcome = player.play(seed)
            side.tasks.append(_told(outcome, player.turns))
    return sides


def _players(
    trained: "Trained", temperature: float | None, *, alone: bool
) -> Iterator[tuple[str, int, PolicyPlayer]]:
    from rltune.errors import CheckpointError
    from rltune.trainer.models.export import trained_policy
    from rltune.trainer.start import policy_at_start

    config = trained.config
    drawn_at = config.gate.temperature if temperature is None else temperature
    env = env_maker(config.env, config.reward, trained.base)()

    def player(policy: "Policy") -> PolicyPlayer:
        return PolicyPlayer(policy, config, env, temperature=drawn_at, is_sweep=True)

    if not alone:
        try:
            start = policy_at_start(trained.trial, config, trained.base, device="cpu")
        except CheckpointError as error:
            raise StoreError(str(error)) from error
        yield "before", 0, player(start)
    yield "after", trained.step, player(trained_policy(trained))


@contextmanager
def _silence(is_quiet: bool) -> Iterator[None]:
    if not is_quiet:
        yield
        return
    with redirect_stdout(io.StringIO()):
        yield


def _told(outcome: Outcome, turns: Sequence[tuple[str, Step]]) -> dict[str, Any]:
    return {
        "seed": outcome.seed,
        "success": outcome.success,
        "failure_class": outcome.failure_class,
        "reward": sum(step.reward for _, step in turns),
        "turns": [
            {"response": response, "reward": step.reward, "observation": step.observation}
            for response, step in turns
        ],
    }


def _summary(sides: Sequence[Side]) -> Iterator[str]:
    """Yield a line for each side: `before training, step 0: solved 1 of 3, reward 0.4`."""
    for side in sides:
        n, solved = len(side.tasks), sum(task["success"] for task in side.tasks)
        reward = sum(task["reward"] for task in side.tasks) / n
        yield (
            f"{side.name} training, step {side.step}: solved {solved} of {n}, mean reward "
            f"{reward:.4g}"
        )
