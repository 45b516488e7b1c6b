"""Golden texts: drawn at a fixed width, hashes masked, compared whole.

`RLTUNE_UPDATE_GOLDEN=1 pytest tests/report tests/cli` rewrites them; read the difference.
"""

import io
import os
import re
from pathlib import Path

from rich.console import RenderableType

from rltune.cli.console import QuietConsole

GOLDEN = Path(__file__).parent / "golden" / "report"


def drawn(item: RenderableType, width: int) -> str:
    """Return a drawing as a non-terminal of this width gets it."""
    out = io.StringIO()
    QuietConsole(file=out, width=width, markup=False, highlight=False, emoji=False).print(item)
    return out.getvalue()


def masked(text: str, root: Path | None = None) -> str:
    """Return text with identities replaced by as many #, and root by <root>."""
    if root is not None:
        text = text.replace(str(root), "<root>")
    text = re.sub(r"(?<=-s\d-)[0-9a-f]{10}", "#" * 10, text)
    return re.sub(r"\bkl-[0-9a-f]{8}\b", "kl-" + "#" * 8, text)


def assert_golden(name: str, text: str) -> None:
    """Compare with, or rewrite, `tests/golden/report/<name>.txt`."""
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("RLTUNE_UPDATE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
