"""The base models that a server offers: the shipped tiny ones, and folders."""

from dataclasses import dataclass
from pathlib import Path

from rltune.errors import InputError, Problem
from rltune.policy.load import CausalLM, assemble, quiet
from rltune.policy.model_folder import SHIPPED
from rltune.policy.source import read_model
from rltune.remote.server.wire import RefusedError
from rltune.spec.model_name import tiny_base


@dataclass(frozen=True, slots=True)
class Base:
    """A frozen network and what sampling needs to know of its tokenizer."""

    network: CausalLM
    end_ids: tuple[int, ...]
    pad_id: int
    max_context: int


class Bases:
    """Base models by name; each is loaded when it is first asked for.

    Args:
        folders: Models besides the shipped ones; their names are the paths as given.

    Raises:
        InputError: One is no folder.

    """

    def __init__(self, folders: tuple[str, ...] = ()) -> None:
        for folder in folders:
            if not Path(folder).is_dir():
                what = f"{folder!r} is not a folder."
                raise InputError(Problem("--model", what, action="Give a saved model's folder."))
        tiny = {tiny_base(path.name): ("tiny", path.name) for path in sorted(SHIPPED.iterdir())}
        self._places = tiny | {folder: (folder, "") for folder in folders}
        self._loaded: dict[str, Base] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The names, the shipped models first."""
        return tuple(self._places)

    def get(self, name: str) -> Base:
        """Return a base.

        Raises:
            RefusedError: There is none of this name.

        """
        if name not in self._places:
            raise RefusedError(f"{name!r} is not served here; there is {', '.join(self.names)}")
        if name not in self._loaded:
            self._loaded[name] = _load(*self._places[name])
        return self._loaded[name]


def _load(model: str, env_kind: str) -> Base:
    quiet()
    network, tokenizer = read_model(model, env_kind)
    network.eval().requires_grad_(False)
    policy = assemble(network, tokenizer, template="auto", is_bare=False)
    context = int(getattr(network.config, "max_position_embeddings", 0))
    return Base(network, policy.end_ids, policy.pad_id, context)
