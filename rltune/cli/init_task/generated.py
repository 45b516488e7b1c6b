"""A data set of reasoning-gym as an environment, with what a sweep over it must know."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from rltune.cli.init_task.problems import Problems, problems_of
from rltune.errors import InputError, Problem
from rltune.spec.problems import problems_from
from rltune.spec.schema.env_verified import VerifiedConfig
from rltune.trainer.tasks import env_maker
from rltune_envs.base import TextEnv
from rltune_envs.draw import draw
from rltune_envs.errors import GenerationError

SOURCE = "reasoning_gym:"
_SIZES = {"heldout": 256, "test": 256, "train": 1024}  # in the order in which tasks are drawn
_SHARES = (1, 2, 4, 8)  # divisors of the sizes: some data sets have a few hundred problems
_TEMPLATE = "{question}\nGive the answer in tags: <answer>...</answer>"


def is_generated(file: Path) -> bool:
    """Return whether what was given is a data set and no file."""
    return str(file).startswith(SOURCE)


def require_no_columns(options: Sequence[str | None]) -> None:
    """Refuse options of a file's columns.

    Raises:
        InputError: One is given.

    """
    if any(options):
        what = "are of a file of problems; a data set has its own question, answer and scorer."
        action = "Leave them out, or change env in the sweep file that is written."
        raise InputError(Problem("--question, --answer, --verifier", what, action=action))


def generated_problems(source: str) -> Problems:
    """Return the problems that a sweep over a data set plays."""
    section = {
        "kind": "verified",
        "source": source,
        "template": _TEMPLATE,
        "verifier": {"kind": "reasoning_gym"},
    }
    try:
        config = VerifiedConfig.model_validate(section)
    except ValidationError as error:
        raise InputError(list(problems_from(error, VerifiedConfig, lambda _: "--task"))) from error
    env = env_maker(config)()
    return problems_of(section, env, _drawn(env))


def _drawn(env: TextEnv) -> dict[str, list[int]]:
    """Return the seeds of each part, as a sweep draws them; of as many tasks as there are.

    Raises:
        GenerationError: There are not even an eighth of the usual number.

    """
    split_seed = VerifiedConfig.model_fields["split_seed"].default
    for share in _SHARES:
        try:
            tasks, _ = draw(env, {part: n // share for part, n in _SIZES.items()}, split_seed)
        except GenerationError:
            if share == _SHARES[-1]:
                raise
        else:
            break
    return {part: [task.seed for task in own] for part, own in tasks.items()}


def env_lines(problems: Problems) -> Iterator[tuple[str, str]]:
    """Yield the lines of the env section, each with its comment."""
    section = problems.section
    yield f'    source: "{section["source"]}"', "generates the problems, and scores the answers"
    yield "    arguments: {}", "of the data set; its difficulty, for example"
    yield "    template: |-", "what the policy reads; it must ask for the tags"
    yield from ((f"      {text}", "") for text in section["template"].split("\n"))
    yield "    verifier: reasoning_gym", "the content of the last <answer> tags counts"
    yield f"    train_tasks: {problems.sizes['train']}", "generated, as are those of the gate"
