"""W&B variables of the caller that must not reach the run of a trial.

A variable that names a run, a sweep or a running service is the caller's: with WANDB_SWEEP_ID and
WANDB_RUN_ID set, W&B logs every trial to that one run, whatever `wandb.init` is told.
"""

import os
from collections.abc import MutableMapping

KEPT = frozenset(
    {
        "WANDB_API_KEY",
        "WANDB_BASE_URL",
        "WANDB_ENTITY",
        "WANDB_MODE",
        "WANDB_PROJECT",
        "WANDB_CREDENTIALS_FILE",
        "WANDB_IDENTITY_TOKEN_FILE",
        "WANDB_CONFIG_DIR",
        "WANDB_CACHE_DIR",
        "WANDB_DATA_DIR",
        "WANDB_ARTIFACT_DIR",
        "WANDB_HTTP_PROXY",
        "WANDB_HTTPS_PROXY",
        "WANDB_HTTP_TIMEOUT",
        "WANDB_FILE_PUSHER_TIMEOUT",
        "WANDB_INSECURE_DISABLE_SSL",
        "WANDB_CORE_DEBUG",
        "WANDB_DEBUG",
        "WANDB_ERROR_REPORTING",
    }
)
"""The account, the server, the way to it and the places of caches; whatever else starts with
WANDB_ names a run, describes it, or changes how one is written."""


def forget_caller(environ: MutableMapping[str, str] = os.environ) -> tuple[str, ...]:
    """Remove what names the caller's run, sweep or service; return the names. Call before W&B."""
    names = tuple(name for name in environ if name.startswith("WANDB_") and name not in KEPT)
    for name in names:
        del environ[name]
    return names
