"""The project's own Tinker server on loopback, and the real SDK as its client."""

import gc
from importlib.util import find_spec

import pytest

# The SDK is an extra.
_NEED_IT = ("backend", "download", "faults", "server", "sweep")
collect_ignore = [] if find_spec("tinker") else [f"test_remote_{name}.py" for name in _NEED_IT]


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """A server that lives as long as the tests."""
    from rltune.remote.server.bases import Bases
    from rltune.remote.server.http import TinkerServer
    from rltune.remote.server.service import Service

    with TinkerServer(Service(tmp_path_factory.mktemp("tinker"), Bases())) as running:
        yield running


@pytest.fixture(scope="session")
def client(server):
    import tinker
    from tinker_client import forget_open_sockets

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TINKER_API_KEY", "tml-local")
        patch.setenv("TINKER_TELEMETRY", "0")
        with tinker.ServiceClient(base_url=server.url) as service:
            forget_open_sockets(service)
            yield service


@pytest.fixture(scope="module")
def _sdk_garbage():
    """Look for it once: the SDK leaves the connection that reads its settings open.

    A module that connects ignores the warnings of it.
    """
    yield
    gc.collect()


@pytest.fixture
def connected(server, monkeypatch, _sdk_garbage):
    """Lead the SDK to the project's own server."""
    monkeypatch.setenv("TINKER_API_KEY", "tml-local")
    monkeypatch.setenv("TINKER_BASE_URL", server.url)
    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    return server


@pytest.fixture(scope="session")
def other_service(tmp_path_factory):
    """The service that `served` is told to check in place of the project's own."""
    from served import download_start

    return download_start(tmp_path_factory.mktemp("start"))


@pytest.fixture
def service(request, _sdk_garbage):
    """Lead the SDK to the service under test."""
    from served import MODEL, Served

    if MODEL:
        return request.getfixturevalue("other_service")
    request.getfixturevalue("connected")
    return Served()
