"""Keys of services never reach a record: their values are blotted out of what is written.

A secret lives in an environment variable, and nowhere in a config. It can still end up in a
command line, in an exception's text or in a library's log line; all of these pass through `masked`.
"""

import os
import re
from collections.abc import Mapping

MASK = "***"
_NAME = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL)S?$", re.IGNORECASE)
_ASSIGNED = re.compile(
    r"(?P<name>[\w.-]*(?:api_?key|token|secret|password|passwd)s?)(?P<sign>=)(?P<value>\S+)",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"[-+]?[\d.]+(e[-+]?\d+)?", re.IGNORECASE)
SHORTEST = 8
"""Characters: a shorter value of a variable would blot out ordinary words."""


def masked(text: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return the text with every secret as `***`.

    Secrets are the values of environment variables whose name ends in KEY, TOKEN, SECRET, PASSWORD
    or CREDENTIAL, and what stands after `...key=`, `...token=`, `...secret=` or `...password=`;
    numbers, such as those of `max_tokens=400`, stay.

    Args:
        text: What is going to be written.
        environ: The environment.

    """
    values = {
        value for name, value in environ.items() if _NAME.search(name) and len(value) >= SHORTEST
    }
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, MASK)
    return _ASSIGNED.sub(_blot, text)


def _blot(found: re.Match[str]) -> str:
    if _NUMBER.fullmatch(found["value"]):
        return found[0]
    return f"{found['name']}{found['sign']}{MASK}"
