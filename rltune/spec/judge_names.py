"""What the judge's address and the name of its key's variable must look like.

A person may paste a key into either of them: no message repeats what was given.
"""

import ipaddress
import re
from urllib.parse import SplitResult, urlsplit

from rltune.spec.errors import Violation, refuse

_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
_HOST = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9_-]{1,63}(?<!-))*\.?")
_ADDRESS_ACTION = (
    "Give http(s)://host, a port and a path where needed, such as http://127.0.0.1:8801/v1. The "
    "key goes into the environment variable that attribution.llm.api_key_env names."
)
_VARIABLE_ACTION = (
    "Give the name, in capitals, digits and underscores, such as OPENAI_API_KEY, and put the key "
    "into that variable."
)


def address_fault(url: object) -> str:
    """Return what is wrong with the address of a service, without it; empty when nothing is."""
    if not isinstance(url, str):
        return "it is not text"
    if not (url.isascii() and url.isprintable()) or " " in url:
        return "it has spaces, or characters that are not ASCII"
    try:
        parts = urlsplit(url)
    except ValueError:
        return "its host cannot be read"
    if parts.scheme not in ("http", "https") or not url.lower().startswith(f"{parts.scheme}://"):
        return "it does not begin with http:// or https://"
    if "@" in parts.netloc:
        return "it holds a user name or password before the host"
    if "?" in url or "#" in url:
        return "it holds a query or fragment"
    return _host_fault(parts)


def _host_fault(parts: SplitResult) -> str:
    host = parts.hostname or ""
    if not host:
        return "it has no host"
    if "[" in parts.netloc:
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            return "its host cannot be read"
    elif not _HOST.fullmatch(host):
        return "its host cannot be read"
    try:
        is_port = parts.port != 0 and not parts.netloc.endswith(":")
    except ValueError:
        is_port = False
    return "" if is_port else "its port is not between 1 and 65535"


def checked_address(url: object) -> object:
    """Return an address unchanged; refuse it where `address_fault` finds something."""
    if fault := address_fault(url):
        refuse([Violation("", f"this is not the address of a service: {fault}.", _ADDRESS_ACTION)])
    return url


def checked_variable(name: object) -> object:
    """Return the name of an environment variable unchanged; refuse anything else."""
    if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
        what = "this is not the name of an environment variable."
        refuse([Violation("", what, _VARIABLE_ACTION)])
    return name
