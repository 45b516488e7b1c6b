"""Names of models: valid ones for `policy.model`, and those of the shipped policies on a server."""

from rltune.errors import Problem

ALLOWED = (
    "Allowed: tiny, a folder with config.json and weights in safetensors, a hub id, or "
    "trial:RUN/TRIAL."
)


def name_problem(model: str, where: str = "policy.model") -> Problem | None:
    """Return why a name that is no folder cannot be a hub id either; None when it can."""
    if model.lower().endswith(".gguf"):
        what = f"{model!r} is a GGUF file, which holds rounded weights for inference."
        action = f"rltune convert {model} --out FOLDER, and give the folder."
        return Problem(where, what, action=action)
    if model.startswith(("/", ".", "~")) or model.count("/") > 1 or model.endswith("/"):
        return Problem(where, f"{model!r} is not a folder.", ALLOWED, "Check the path.")
    return None


def service_model(model: str, env_kind: str) -> str:
    """Return the name of a model as a base model on a training service."""
    return tiny_base(env_kind) if model == "tiny" else model


def tiny_base(env_kind: str) -> str:
    """Return the name of a shipped tiny policy as a base model of a server: `tiny/sokoban`."""
    return f"tiny/{env_kind}"
