"""A trial's connection to a training service: clients, waiting with a limit, counts. No torch."""

import atexit
import concurrent.futures
import contextlib
import os
import threading
from collections.abc import Callable
from importlib import metadata
from typing import Any

from rltune.errors import InputError, Problem, RemoteError
from rltune.remote.meter import Meter
from rltune.remote.sdk import require_sdk
from rltune.store.secret import masked

KEY, ADDRESS = "TINKER_API_KEY", "TINKER_BASE_URL"
_ASK_S = 10.0  # seconds that a service has to say what it is


class Session:
    """Clients of one service, opened when the first one is asked for.

    The idempotence rule of the client: a call that may step the optimiser is sent once. The SDK
    sends it again only under the same place in the client's order, which a service does once. An
    attempt whose answer stays away ends, and the trial goes on from its last checkpoint.

    Args:
        base: Name of the base model on the service.
        timeout_s: Longest wait for one answer, in seconds.
        meter: Counts the calls and tokens; None counts them for nobody.

    """

    def __init__(self, base: str, *, timeout_s: float, meter: Meter | None = None) -> None:
        self.base, self.timeout_s = base, timeout_s
        self.meter = meter or Meter()
        self._service: Any = None

    def new_adapter(self, *, rank: int, seed: int) -> Any:
        """Return a training client with a new adapter."""
        return self._client(
            lambda service: service.create_lora_training_client(
                self.base, rank=rank, seed=seed, train_unembed=False
            ),
            "create an adapter",
        )

    def saved_adapter(self, path: str) -> Any:
        """Return a training client with the weights and the optimiser of a saved state."""
        return self._client(
            lambda service: service.create_training_client_from_state_with_optimizer(path),
            f"load the state {path}, which may have expired",
        )

    def base_sampler(self) -> Any:
        """Return a sampling client of the base model."""
        return self._client(
            lambda service: service.create_sampling_client(base_model=self.base),
            "sample from the base model",
        )

    def wait(self, future: Any, what: str) -> Any:
        """Return an answer.

        Args:
            future: Of a call of the SDK.
            what: The call, after "the training service did not".

        Raises:
            RemoteError: It failed, or did not come in time.

        """
        self.meter.count(requests=1)
        try:
            return future.result(self.timeout_s)
        except (TimeoutError, concurrent.futures.TimeoutError) as error:
            text = f"did not {what} within {self.timeout_s:g} s (trainer.timeout_s)"
            raise _remote_error(text) from error
        except Exception as error:  # the SDK's own, httpx's, and ValueError for a lost request
            why = " ".join(masked(str(error)).split()) or type(error).__name__
            raise _remote_error(f"did not {what}: {why[:400].rstrip('.')}") from error

    def close(self) -> None:
        """End the session; a service that does not answer ends it by itself.

        In a thread: the SDK waits with this, too, for an opening that it is trying.
        """
        self.meter.save()
        service, self._service = self._service, None
        if service is not None:
            ending = threading.Thread(target=_end, args=(service,), daemon=True)
            ending.start()
            ending.join(2 * _ASK_S)

    def _client(self, make: Callable[[Any], Any], what: str) -> Any:
        """Return a client of the service.

        The SDK opens its session inside such a call, and tries for five minutes: in a thread, which
        nobody waits for longer than for another answer.
        """
        opened: concurrent.futures.Future[Any] = concurrent.futures.Future()

        def open_one() -> None:
            try:
                opened.set_result(make(self._opened()).result(self.timeout_s))
            except BaseException as error:
                opened.set_exception(error)

        require_service("trainer.backend")
        threading.Thread(target=open_one, daemon=True).start()
        return self.wait(opened, what)

    def _opened(self) -> Any:
        if self._service is None:
            import tinker

            self._service = tinker.ServiceClient()
        return self._service


def _end(service: Any) -> None:
    """End a session, and close its client while the SDK's loop runs: at exit it is too late."""
    ended = service.close("success")
    try:
        ended.result(_ASK_S)
    except Exception:  # the service forgets a session that is silent
        ended.future().cancel()  # the SDK closes its client then


def require_service(where: str) -> None:
    """Refuse to go on without the SDK or its key.

    Raises:
        InputError: One is missing.

    """
    require_sdk(where)
    if not os.environ.get(KEY):
        what = f"tinker needs the environment variable {KEY}, which is not set."
        # Not as NAME=value, which is masked wherever it is written.
        action = f"Set it; for `rltune serve-tinker` to tml-local, and {ADDRESS} to its address."
        raise InputError(Problem(where, what, action=action))


def require_base(base: str, where: str) -> None:
    """Refuse a base model that the service does not list.

    Raises:
        InputError: It does not, or it does not answer.

    """
    require_service("trainer.backend")
    _require_there()
    try:
        listed = rest_client().get_server_capabilities().result(_ASK_S * 3)
    except Exception as error:
        why = " ".join(masked(str(error)).split()) or type(error).__name__
        what = f"the training service at {address()} does not say what it offers: {why[:400]}"
        action = f"Check {KEY} and {ADDRESS}."
        what = f"{what.rstrip('.')}."
        raise InputError(Problem("trainer.backend", what, action=action)) from error
    names = [one.model_name for one in listed.supported_models]
    if base not in names:
        allowed = f"It offers {', '.join(map(str, names))}."
        what = f"{base!r} is no base model of the training service at {address()}."
        raise InputError(Problem(where, what, allowed))


def rest_client() -> Any:
    """Return a client for what needs no session; its connections are closed at exit."""
    import tinker

    client = tinker.RestClient()
    atexit.register(_close_shared, client.holder)
    return client


def _close_shared(holder: Any) -> None:
    """Close connections that the SDK keeps for the process, and frees when its loop is gone."""
    with contextlib.suppress(Exception):  # nothing depends on it
        holder.run_coroutine_threadsafe(holder.aclose()).result(_ASK_S)


def _require_there() -> None:
    """Refuse an address where nothing answers; the SDK would try for five minutes.

    Raises:
        InputError: Nothing does.

    """
    import httpx

    if not (text := os.environ.get(ADDRESS)):
        return
    try:
        httpx.get(_health(text), timeout=_ASK_S)  # any answer will do
    except (httpx.TransportError, httpx.InvalidURL) as error:
        why = masked(str(error)).rstrip(".")
        what = f"the training service at {address()} does not answer: {why}."
        action = f"Check {ADDRESS}; `rltune serve-tinker` prints its own."
        raise InputError(Problem("trainer.backend", what, action=action)) from error


def address() -> str:
    """Return where the service is, without what may be secret in an address."""
    import httpx

    text = os.environ.get(ADDRESS)
    if not text:
        return "the SDK's own address"
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL:
        return f"the address in {ADDRESS}"
    if not url.host:
        return f"the address in {ADDRESS}"
    return f"{url.host}:{url.port}" if url.port else url.host


def identity(base: str, rank: int) -> dict[str, Any]:
    """Return what the audit compares of a service; what it does not declare is `unknown`."""
    return {
        "server": server_kind(),
        "sdk": metadata.version("tinker"),
        "base_model": base,
        "lora_rank": rank,
    }


def server_kind() -> str:
    """Return the server's own name and version where it tells them in its health answer."""
    import httpx

    if not (text := os.environ.get(ADDRESS)):
        return "hosted"
    try:
        answer = httpx.get(_health(text), timeout=_ASK_S).json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return "unknown"
    return str(answer.get("server", "unknown")) if isinstance(answer, dict) else "unknown"


def _health(address: str) -> str:
    return f"{address.rstrip('/')}/api/v1/healthz"


def _remote_error(what: str) -> RemoteError:
    return RemoteError(
        f"the training service at {address()} {what}. The last checkpoint is kept; see that the "
        "service is there, and the same command goes on."
    )
