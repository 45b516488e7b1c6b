"""What `rltune init --task` does: read, say what was chosen, write."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rltune.cli.init_task.generated import generated_problems, is_generated, require_no_columns
from rltune.cli.init_task.problems import Asked, Problems, read_problems, texts_of
from rltune.cli.init_task.sweep import sweep_text
from rltune.errors import InputError, Problem
from rltune.report.render import plural
from rltune.store.files import write_text_atomic
from rltune_envs.base import TextEnv
from rltune_envs.errors import EnvError
from rltune_envs.protocols import HasRepeatedRows, require
from rltune_envs.verified_task.guess import Guess, guess_task

if TYPE_CHECKING:
    from rltune.policy.byte_policy import Demonstration
    from rltune.policy.load import Policy

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
_ROUNDS, _STEPS = 10, 40  # of teaching, at most
_TOKENS = 500_000  # that teaching may read: a minute of one core
_PROBED = 64  # rows on which its skill is measured
_FRAME = 24  # bytes around a prompt and its response
_HOPELESS = 0.03  # below it few groups of 8 hold a right answer
_TARGET = 0.2  # probability of the gold response at which teaching ends: some are right, most not


def write_task(asked: Asked) -> None:
    """Write a sweep over the problems of a file, and a policy unless one is named.

    Raises:
        InputError: A name or the file cannot be used, or what would be written is there.

    """
    _require_free(asked)
    try:
        guess, problems = _read(asked)
    except (EnvError, ValueError) as error:
        raise InputError(str(error)) from error
    _say(asked.file, guess, problems)
    if asked.model is None:
        _make_policy(asked.policy, problems, asked.sweep)
    asked.sweep.parent.mkdir(parents=True, exist_ok=True)
    write_text_atomic(asked.sweep, sweep_text(asked, guess, problems))
    typer.echo(f"wrote {asked.sweep}")
    typer.echo(f"Next: rltune check {asked.sweep} && rltune sweep {asked.sweep}")


def _require_free(asked: Asked) -> None:
    """Refuse a name that no sweep can have, and what would be overwritten."""
    name = asked.target.name
    if not _NAME.fullmatch(name):
        what = f"{name!r} cannot be the name of a sweep."
        raise InputError(Problem("NAME", what, "Use lower case, digits, - and _."))
    paths = [asked.sweep] + ([asked.policy] if asked.model is None else [])
    if (there := [path for path in paths if path.exists()]) and not asked.force:
        action = "Give another name, or replace it with --force."
        raise InputError([Problem(str(path), "exists.", action=action) for path in there])


def _read(asked: Asked) -> tuple[Guess | None, Problems]:
    """Return the problems, and for a file what it was taken to mean."""
    columns = {"question": asked.question, "answer": asked.answer, "verifier": asked.verifier}
    if is_generated(asked.file):
        require_no_columns(list(columns.values()))
        return None, generated_problems(str(asked.file))
    guess = guess_task(str(asked.file), **columns)
    return guess, read_problems(asked.file, guess)


def _say(file: Path, guess: Guess | None, problems: Problems) -> None:
    sizes = problems.sizes
    if guess is not None:
        _say_guess(file, guess)
        _say_repeated(problems.env)
    counts = f"{sizes['train']} to train on, {sizes['heldout']} held out"
    typer.echo(f"  split     {counts}, {sizes['test']} for the test")


def _say_guess(file: Path, guess: Guess) -> None:
    is_custom = ":" in guess.verifier  # it may read the whole row
    unused = [] if is_custom else [name for name in guess.columns if name not in _used(guess)]
    typer.echo(f"{file}: {plural(guess.n_rows, 'row')}, columns {', '.join(guess.columns)}")
    typer.echo(f"  question  {guess.question}")
    typer.echo(f"  answer    {guess.answer}")
    typer.echo(f"  verifier  {guess.verifier}: {guess.because}")
    if unused:
        typer.echo(f"  not used  {', '.join(unused)}")


def _say_repeated(env: TextEnv) -> None:
    if n := require(env, HasRepeatedRows).repeated_rows():
        typer.echo(f"  left out  {plural(n, 'row')} that repeat{'s' * (n == 1)} an earlier one")


def _used(guess: Guess) -> tuple[str | None, ...]:
    return guess.question, guess.answer, guess.choices


def _make_policy(folder: Path, problems: Problems, sweep: Path) -> None:
    """Write a policy that reads bytes, taught on problems that are trained on."""
    import torch

    from rltune.policy.byte_policy import Demonstration, byte_policy, save

    torch.set_num_threads(1)  # the weights depend on their number in the last bits
    policy = byte_policy(context=problems.context)
    texts = [texts_of(problems.env, seed) for seed in problems.seeds["train"]]
    shown = [
        Demonstration(problems.env.system_prompt, prompt, response)
        for prompt, response in texts
        if response is not None
    ]
    if shown:
        typer.echo("teaching a small policy how answers look (under a minute on a free core) ...")
        reached = _teach(policy, shown)
        typer.echo(f"it gives the right answer with probability {reached:.2f}, mean of these rows")
        if reached < _HOPELESS:
            typer.echo("too rarely to learn from its rewards: name a language model with --model,")
            typer.echo(f"or teach it longer: rltune warmstart {sweep} --out FOLDER")
    save(policy, folder)
    typer.echo(f"wrote {folder}/")


def _teach(policy: "Policy", shown: "Sequence[Demonstration]") -> float:
    """Teach until the gold responses have the wanted probability; return what was reached."""
    from rltune.policy.byte_policy import batch_size, mean_probability, teach

    longest = max(len(f"{one.prompt}{one.response}".encode()) for one in shown) + _FRAME
    rounds = _TOKENS // (_STEPS * batch_size(longest) * longest)
    reached = 0.0
    for seed in range(max(1, min(_ROUNDS, rounds))):
        teach(policy, shown, steps=_STEPS, seed=seed)
        reached = mean_probability(policy, shown[:_PROBED])
        if reached >= _TARGET:
            break
    return reached
