"""`rltune chat` of a model's folder: one that `rltune model` wrote, or any other."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from pydantic import ValidationError

from rltune.cli.console import emit_json
from rltune.cli.playing.choose import KINDS, choose, config_of, refuse_chosen
from rltune.cli.playing.policy import PolicyPlayer
from rltune.cli.playing.sides import Contestant, play_sides, summary
from rltune.errors import InputError, Problem
from rltune.policy.adapter_folder import CARD, CONFIG
from rltune.spec.custom_code import import_paths
from rltune.spec.problems import problems_from
from rltune.spec.schema.trial import LoraConfig, TrialConfig
from rltune.spec.trial_reference import is_reference
from rltune.store.files import read_json
from rltune.trainer.custom_env import naming_custom_env
from rltune.trainer.models.references import made_model
from rltune.trainer.tasks import env_maker

_SHIPPED = "rltune/policy/weights/"


@dataclass(frozen=True, slots=True)
class FolderAsked:
    """What was asked for."""

    folder: Path  # of a model or an adapter
    env: str | None  # what is played; None: what the card says
    base: str | None  # what it was trained from
    temperature: float | None  # of the sampling; None: the gate's, else 1
    alone: bool  # whether the base is left out
    no_custom_code: bool = False  # whether an environment of the user's own is refused


def is_model_folder(given: str) -> bool:
    """Return whether a name is the folder of a model or an adapter; a trial's folder is neither."""
    folder = Path(given)
    return any((folder / name).is_file() for name in ("config.json", CONFIG))


def chat_folder(asked: FolderAsked, seeds: Sequence[int], *, as_json: bool) -> None:
    """Play the tasks of these seeds with the model of a folder, and with its base where it is.

    Raises:
        InputError: The environment or the base is unknown, or the model cannot be used.

    """
    card = read_json(asked.folder / CARD) if (asked.folder / CARD).is_file() else {}
    if not isinstance(card, dict):
        raise InputError(_no_card(asked.folder, "it is no mapping"))
    config = _config(asked, card)
    with naming_custom_env(config.env):
        players = list(_players(asked, card, config))
        sides = play_sides(players, seeds, is_quiet=as_json)
    if as_json:
        emit_json({"folder": str(asked.folder), "step": card.get("step"), "sides": sides})
    else:
        typer.echo("\n".join(summary(sides)))


def _config(asked: FolderAsked, card: Mapping[str, Any]) -> TrialConfig:
    """Return a config whose policy is not yet named: environment, limits, template, dtype."""
    if asked.env is not None:
        chosen = choose(asked.env, prompt=None, overrides=[], defaults={})
        if asked.no_custom_code:
            refuse_chosen(asked.env, chosen)
        return config_of(chosen, str(asked.folder))
    if "play" not in card:
        what = f"{asked.folder} does not say which environment it plays."
        allowed = f"Give one of {', '.join(KINDS)}, or what else rltune play takes."
        raise InputError(Problem("--env", what, allowed))
    try:
        sections = _sections(asked.folder, card)
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(_no_card(asked.folder, repr(error))) from error
    try:
        return TrialConfig.model_validate(sections)
    except ValidationError as error:
        where = f"{asked.folder / CARD}: play."
        problems = problems_from(error, TrialConfig, lambda path: where + ".".join(map(str, path)))
        raise InputError(list(problems)) from error


def _no_card(folder: Path, why: str) -> Problem:
    what = f"is no card that rltune wrote ({why})."
    return Problem(str(folder / CARD), what, action="Restore or remove it.")


def _sections(folder: Path, card: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sections of a config that a card names."""
    play, prompt = card["play"], card["prompt"]
    for key, path in import_paths(play):  # a folder may come from anyone
        what = f"{folder / CARD}: {key} names the code {path!r}, which is not run."
        raise InputError(Problem("--env", what, action="Give a sweep file of yours that names it."))
    return {
        "env": play["env"],
        "reward": play["reward"],
        "rollout": {
            "max_response_tokens": play["max_response_tokens"],
            "max_context": prompt["max_context"],
        },
        "policy": {
            "model": str(folder),
            "template": prompt["template"],
            "dtype": card["dtype"],
        },
        "gate": {"temperature": play["temperature"]},
    }


def _players(
    asked: FolderAsked, card: Mapping[str, Any], config: TrialConfig
) -> Iterator[Contestant]:
    from rltune.policy.load import policy_of

    env = env_maker(config.env, config.reward)()
    is_adapter = (asked.folder / CONFIG).is_file()
    base = _base(asked, card) if is_adapter else asked.base
    is_own = asked.env is None  # the card's environment and limits
    drawn_at = asked.temperature
    if drawn_at is None:
        drawn_at = config.gate.temperature if is_own else 1.0

    def player(model: str, lora: LoraConfig) -> PolicyPlayer:
        section = config.policy.model_copy(update={"model": model, "lora": lora})
        policy = policy_of(config.model_copy(update={"policy": section}), Path.cwd(), device="cpu")
        return PolicyPlayer(policy, config, env, temperature=drawn_at, is_sweep=is_own)

    if base is not None and not asked.alone:
        yield "base", None, player(base, LoraConfig())
    if is_adapter and base is not None:
        yield "model", card.get("step"), player(base, _lora(asked.folder))
    else:
        yield "model", card.get("step"), player(str(asked.folder), LoraConfig())


def _lora(folder: Path) -> LoraConfig:
    """Return an adapter's section from peft's own file."""
    saved = read_json(folder / CONFIG)
    try:
        return LoraConfig(
            rank=saved["r"],
            alpha=saved["lora_alpha"],
            targets=tuple(dict.fromkeys(name.rsplit(".")[-1] for name in saved["target_modules"])),
            init=str(folder),
        )
    except (KeyError, TypeError, AttributeError, ValidationError) as error:
        what = "is not the config of a LoRA adapter with a list of target_modules."
        raise InputError(Problem(str(folder / CONFIG), what)) from error


def _base(asked: FolderAsked, card: Mapping[str, Any]) -> str:
    """Return the base of an adapter, as `policy.model` takes it."""
    saved = read_json(asked.folder / CONFIG).get("base_model_name_or_path") or ""
    about = card.get("base", {})
    name = asked.base or about.get("model") or saved
    if name.startswith(_SHIPPED):
        return "tiny"
    if is_reference(name):
        return str(made_model(name, Path.cwd(), where="--base"))
    is_lost = asked.base is None and about.get("how") and not Path(name).is_dir()
    if is_lost or not name:
        what = f"{asked.folder} is an adapter of {name!r}, which is not here."
        what = what if name else f"{asked.folder} is an adapter that names no base."
        raise InputError(Problem("--base", what, action="Give the folder or hub id of its base."))
    return str(name)
