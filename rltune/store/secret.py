"""Secrets never reach a file: their values are masked in everything that is written.

A secret lives in an environment variable, and nowhere in a config. It can still end up in a
command line, in an exception's text or in a library's log line; all of these pass through `masked`.
"""

import os
import re
from collections.abc import Mapping
from functools import lru_cache

MASK = "***"
_NAME = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL)S?$", re.IGNORECASE)
_ASSIGNED = re.compile(
    r"""(?P<name>[\w.-]*(?:api_?key|secret|password|passwd)s?|[\w.-]*(?P<token>token))
    (?P<sign>=["']?|["']\s*:\s*["'])(?P<value>[^\s"',;&)\]}]+)""",
    re.IGNORECASE | re.VERBOSE,
)
_IN_URL = re.compile(r"://[^/\s:@]+:[^/\s@]+@")
_NUMBER = re.compile(r"[-+]?[\d.]+(e[-+]?\d+)?", re.IGNORECASE)
_HOLDS = re.compile(r"(api_?key|secret|password|passwd|(access|auth|bearer|hf)_token)s?$", re.I)
SHORTEST = 8
"""Characters: a shorter value of a variable would mask ordinary words."""
_SHORTEST_TOKEN = 6


def secrets_in(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the values of variables whose name ends like that of a key, the longest first."""
    values = {
        value for name, value in environ.items() if len(value) >= SHORTEST and _is_of_secret(name)
    }
    return tuple(sorted(values, key=len, reverse=True))


@lru_cache(maxsize=1024)  # the same variables for every text that is written
def _is_of_secret(name: str) -> bool:
    return _NAME.search(name) is not None


def is_secret(name: str, value: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a text is one that no file may hold.

    Args:
        name: Of what holds it, such as the key of a config.
        value: The text.
        environ: The environment.

    """
    return any(secret in value for secret in secrets_in(environ)) or (
        bool(value) and _HOLDS.search(name) is not None
    )


def without_secrets(text: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return the text with the environment's secrets as `***`, and all else as it is."""
    for value in secrets_in(environ):
        text = text.replace(value, MASK)
    return text


def masked(text: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return the text with every secret as `***`.

    Secrets are the values of environment variables whose name ends in KEY, TOKEN, SECRET, PASSWORD
    or CREDENTIAL; what is given to a name that ends in api_key, secret or password, `name=value`
    or as in a dict; the user and password of a URL. In a program about language most tokens
    are not secrets: `token=value` is one if the value has a digit and is not a number.

    Args:
        text: What is going to be written.
        environ: The environment.

    """
    text = _IN_URL.sub(f"://{MASK}@", without_secrets(text, environ))
    return _ASSIGNED.sub(_mask_value, text)


def _mask_value(match: re.Match[str]) -> str:
    value = match["value"]
    if match["token"] and (
        len(value) < _SHORTEST_TOKEN
        or _NUMBER.fullmatch(value)
        or not any(char.isdigit() for char in value)
    ):
        return match[0]
    return f"{match['name']}{match['sign']}{MASK}"
