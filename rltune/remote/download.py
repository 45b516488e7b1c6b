"""Fetch the adapter of a saved state from a service, as a folder that peft saves."""

import contextlib
import json
import uuid
from pathlib import Path

from rltune.errors import RemoteError
from rltune.policy.adapter_folder import CONFIG, WEIGHTS
from rltune.remote.session import Session, rest_client

_TTL_S = 3600  # the shortest that a service takes; it is deleted as soon as it is here


def download_adapter(session: Session, path: str, folder: Path) -> None:
    """Write the adapter of a state into a folder: config and weights in peft's format.

    The config names no base: how a service calls it is no name here.

    Args:
        session: The connection.
        path: Of the state on the service.
        folder: Must exist.

    Raises:
        RemoteError: The state has expired, or the service hands out no adapters.

    """
    client = session.saved_adapter(path)
    call = client.save_weights_external(f"download-{uuid.uuid4().hex[:8]}", ttl_seconds=_TTL_S)
    made = session.wait(call, "write its adapter for other programs").path
    rest = rest_client()
    try:
        call = rest.get_external_weights_urls(made)
        urls = session.wait(call, "say where its adapter can be fetched").urls
        for name in (CONFIG, WEIGHTS):
            if name not in urls:
                what = f"wrote {', '.join(sorted(urls)) or 'nothing'} for an adapter"
                raise RemoteError(f"the training service {what}, and not {name}, as peft does")
            (folder / name).write_bytes(_fetch(urls[name], name, session.timeout_s))
    finally:
        with contextlib.suppress(Exception):  # it expires
            rest.delete_checkpoint_from_tinker_path(made).result(session.timeout_s)
    _forget_base(folder / CONFIG)


def _fetch(url: str, name: str, timeout_s: float) -> bytes:
    import httpx

    try:
        return httpx.get(url, timeout=timeout_s).raise_for_status().content
    except httpx.HTTPError as error:  # its text may hold a signed address
        why = type(error).__name__
        raise RemoteError(f"the training service did not hand out {name} ({why})") from error


def _forget_base(config: Path) -> None:
    try:
        saved = json.loads(config.read_text(encoding="utf-8"))
        saved.pop("base_model_name_or_path", None)
    except (ValueError, AttributeError) as error:
        raise RemoteError(f"the training service sent a damaged {config.name}") from error
    config.write_text(json.dumps(saved), encoding="utf-8")
