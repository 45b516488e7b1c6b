"""Whether a hub id can be had: from the cache of this machine, or from the hub. No torch here."""

from rltune.errors import InputError, Problem
from rltune.spec.model_name import ALLOWED

_PROBE_S = 10  # seconds that the hub has for an answer


def require_hub(model: str, where: str = "policy.model") -> None:
    """Ask the hub once for a model that is not in the cache; its own loader would ask for a minute.

    Raises:
        InputError: It does not answer, has no such model, or does not give it.

    """
    from huggingface_hub import HfApi, try_to_load_from_cache

    try:
        if isinstance(try_to_load_from_cache(model, "config.json"), str):
            return
        HfApi().model_info(model, timeout=_PROBE_S)
    except Exception as error:  # no network, no such model, no permission: each its own kind
        why = " ".join(str(error).split()) or type(error).__name__
        action = f"Check the name; without network, run `hf download {model}` where there is one "
        action += "and give the folder."
        if model == "smollm2":
            action = "Make it: rltune convert smollm2 --out smollm2"
        raise InputError(
            Problem(
                where,
                f"{model!r} is no folder here and not in the Hugging Face cache, and the hub does "
                f"not give it ({why}).",
                ALLOWED,
                action,
            )
        ) from error
