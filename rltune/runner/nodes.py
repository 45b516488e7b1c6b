"""The machines of the cluster that this process is connected to, and its token.

Imports Ray; import it late.
"""

import socket
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any

import ray

ANSWER_S = 3.0  # a machine that does not take a connection for so long is gone


def living_nodes() -> list[Mapping[str, float]]:
    """Return the resources of each machine that is up and answers."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"] and _answers(node)]


def this_node() -> str:
    """Return the name that this machine has in the cluster, and the start of its id.

    Several nodes may run on one host, and a machine that comes back is another node.
    """
    here = ray.get_runtime_context().get_node_id()
    names = (node["NodeName"] for node in ray.nodes() if node["NodeID"] == here)
    return f"{next(names, 'unknown')} {here[:8]}"


def is_gone(node: str) -> bool:
    """Return whether a machine, as `this_node` names it, does not answer any more.

    It is asked directly: the cluster itself gives a machine up only after a while.
    """
    start = node.rpartition(" ")[2]
    known = next((own for own in ray.nodes() if start and own["NodeID"].startswith(start)), None)
    return known is not None and not (known["Alive"] and _answers(known))


def _answers(node: Mapping[str, Any]) -> bool:
    place = (node["NodeManagerAddress"], node["NodeManagerPort"])
    try:
        socket.create_connection(place, timeout=ANSWER_S).close()
    except OSError:
        return False
    return True


def read_token_again() -> None:
    """Let Ray see the token of now: it read its variables when this process first imported it.

    That may have been before a launch, in a notebook, or for another cluster. What Ray does itself
    when it makes a token; older versions know none.
    """
    with suppress(ImportError, AttributeError):
        raylet: Any = import_module("ray._raylet")
        raylet.Config.initialize("")
        raylet.AuthenticationTokenLoader.instance().reset_cache()
