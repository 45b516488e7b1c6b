"""Whether the rollout engine that a sweep asks for is installed here."""

from rltune.errors import Problem, SpecError
from rltune.rollout.vllm_setup import INSTALL, vllm_version
from rltune.spec.load import LoadedSweep


def engine_problem(loaded: LoadedSweep) -> Problem | None:
    """Return what is missing; None when nothing is. vLLM itself is not loaded."""
    engines = {condition.config["rollout"]["engine"] for condition in loaded.conditions}
    if "vllm" not in engines or vllm_version() is not None:
        return None
    what = "vllm is not installed in this environment."
    return Problem(loaded.where("rollout.engine"), what, action=f"{INSTALL}; see docs/engines.md.")


def require_engine(loaded: LoadedSweep) -> None:
    """Refuse to start a sweep whose engine is not installed.

    Not a part of `require_usable`: a sweep can be checked and planned where it will not run.

    Raises:
        SpecError: It is not.

    """
    if problem := engine_problem(loaded):
        raise SpecError([problem])
