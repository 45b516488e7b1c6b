"""Models of the Hugging Face hub, as folders of the cache. No torch here."""

from pathlib import Path

from rltune.errors import InputError, Problem
from rltune.spec.model_name import ALLOWED

_PROBE_S = 10  # seconds that the hub has for an answer
_WEIGHTS = "*.safetensors"
_FILES = ["*.json", _WEIGHTS, "*.jinja", "*.txt", "*.model"]  # no pickles, and no code


def hub_folder(model: str, *, with_weights: bool = True) -> Path:
    """Return the folder of a model in the cache, downloaded first when it is not there.

    Args:
        model: Its name.
        with_weights: Whether its weights are needed, beside config and tokenizer.

    Raises:
        InputError: The hub does not answer, has no such model, or does not provide it.

    """
    from huggingface_hub import snapshot_download

    if (cached := cached_folder(model, with_weights=with_weights)) is not None:
        return cached
    require_hub(model, with_weights=with_weights)
    files = [name for name in _FILES if with_weights or name != _WEIGHTS]
    try:
        return Path(snapshot_download(model, allow_patterns=files))
    except Exception as error:  # as in require_hub
        raise _not_provided(model, "policy.model", error) from error


def cached_folder(model: str, *, with_weights: bool = True) -> Path | None:
    """Return a model's folder in the cache; None without config, and weights or a tokenizer."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(model, local_files_only=True))
    except (LocalEntryNotFoundError, ValueError):  # ValueError: not a model's name
        return None
    is_whole = (folder / "config.json").exists() and any(
        folder.glob(_WEIGHTS if with_weights else "tokenizer*.json")
    )
    return folder if is_whole else None


def require_hub(model: str, where: str = "policy.model", *, with_weights: bool = True) -> None:
    """Ask the hub once for a model that is not in the cache; its own loader retries for a minute.

    Raises:
        InputError: It does not answer, has no such model, or does not provide it.

    """
    from huggingface_hub import HfApi

    if cached_folder(model, with_weights=with_weights) is not None:
        return
    try:
        HfApi().model_info(model, timeout=_PROBE_S)
    except Exception as error:  # no network, no such model, no permission: each its own kind
        raise _not_provided(model, where, error) from error


def _not_provided(model: str, where: str, error: Exception) -> InputError:
    why = " ".join(str(error).split()) or type(error).__name__
    what = (
        f"{model!r} is neither a folder here nor in the Hugging Face cache, and the hub does not "
    )
    what += f"provide it ({why})."
    action = f"Check the name; without network, run `hf download {model}` where there is one and "
    action += "give the folder."
    if model == "smollm2":
        action = "Make it: rltune convert smollm2 --out smollm2"
    return InputError(Problem(where, what, ALLOWED, action))
