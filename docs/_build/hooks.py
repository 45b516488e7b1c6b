"""What mkdocs does besides rendering docs/: generated tables, formulas, files beside docs/.

- `<!-- generated: NAME -->` on a line of its own becomes the part of that name (`TABLES`).
- A link to a file of the repository outside docs/ (`../examples/my_env.py`) works on the site, too:
  the file is copied there under repository/.
- Formulas become MathML, which browsers draw without any script.
"""

import logging
import re
from collections.abc import Callable
from pathlib import Path

from command_tables import command_tables, sweep_table
from config_tables import knob_table, profile_table, sweep_file_tables, trial_config_tables
from findings import finding_table
from formulas import with_mathml
from layout_tables import contract_list, room_table
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from published import protocol_table, published_table
from rule_tables import mutation_table, rule_table
from structure import structure_picture

ROOT = Path(__file__).resolve().parents[2]
TABLES: dict[str, Callable[[], str]] = {
    "commands": command_tables,
    "config": trial_config_tables,
    "contracts": contract_list,
    "findings": finding_table,
    "knobs": knob_table,
    "mutations": mutation_table,
    "profiles": profile_table,
    "published-differences": published_table,
    "published-protocol": protocol_table,
    "rooms": room_table,
    "rules": rule_table,
    "structure": structure_picture,
    "sweep-file": sweep_file_tables,
    "sweeps": sweep_table,
}
_MARKER = re.compile(r"^<!-- generated: ([a-z-]+) -->$", re.MULTILINE)
_OUTSIDE = re.compile(r"(?<=\]\()\.\./(?P<path>[^)#\s]+)(?=\))")
_log = logging.getLogger("mkdocs.hooks.rltune")


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return a page's Markdown with its generated tables, and links that the site can follow."""

    def beside(found: re.Match[str]) -> str:
        return _beside(found["path"], page, config, files)

    text = _MARKER.sub(lambda found: _table(found[1], page), markdown)
    is_at_the_top = "/" not in page.file.src_uri  # elsewhere `../` leads to docs/ itself
    return _OUTSIDE.sub(beside, text) if is_at_the_top else text


def _table(name: str, page: Page) -> str:
    if name in TABLES:
        return TABLES[name]()
    _log.warning(
        "%s: no generated part is named %r; choose one of %s", page.file.src_uri, name, list(TABLES)
    )
    return ""


def _beside(path: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Add a file outside docs/ to the site and return the link to it."""
    target = f"repository/{path}"
    if not (ROOT / path).is_file():
        _log.warning("%s: ../%s is not a file of the repository", page.file.src_uri, path)
    elif files.get_file_from_path(target) is None:
        files.append(File.generated(config, target, abs_src_path=str(ROOT / path)))
    return target


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return a page's HTML with its formulas as MathML."""
    return with_mathml(html)
