"""HTML elements: text is escaped unless it is markup made here."""

import html
import unicodedata
from collections.abc import Iterable

_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")  # controls, direction marks, zero widths, separators
_VOID = frozenset({"meta", "link", "br", "hr", "wbr"})


class Html(str):
    """Markup that is written as it is. Only this module and literals make it."""

    __slots__ = ()


Child = str | Html | int | None
Attribute = str | int | float | bool | None


def shown(text: str) -> str:
    """Return a text with what is invisible by its code; line ends and tabs stay."""
    return "".join(_shown(char) for char in text.replace("\r\n", "\n"))


def _shown(char: str) -> str:
    is_hidden = char not in "\n\t" and unicodedata.category(char) in _HIDDEN
    return f"U+{ord(char):04X}" if is_hidden else char


def escape(text: str) -> Html:
    """Return a text as markup that shows it, in an element or in a quoted attribute."""
    return Html(html.escape(shown(text), quote=True))


def el(tag: str, *children: Child, **attributes: Attribute) -> Html:
    """Return one element.

    Example: `el("p", "a < b", class_="note")` -> `<p class="note">a &lt; b</p>`

    Args:
        tag: Its name.
        children: Texts, which are escaped, and markup; None is left out.
        attributes: `class_` is `class`, other underscores are dashes; True is a bare attribute,
            None and False leave it out.

    """
    opening = "".join(_attribute(name, value) for name, value in attributes.items())
    if tag in _VOID:
        return Html(f"<{tag}{opening}>")
    return Html(f"<{tag}{opening}>{join(*children)}</{tag}>")


def _attribute(name: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = name.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return f' {name}="{escape(text)}"'


def join(*children: Child) -> Html:
    """Return children one after the other, texts escaped."""
    return Html("".join(_child(child) for child in children if child is not None))


def _child(child: str | Html | int) -> str:
    return child if isinstance(child, Html) else escape(str(child))


def table(
    caption: str,
    headers: Iterable[Child],
    rows: Iterable[Iterable[Child]],
    *,
    numeric: Iterable[int] = (),
    ids: Iterable[str] = (),
) -> Html:
    """Return a table that scrolls by itself where it is too wide; its first column heads the rows.

    Args:
        caption: What it shows.
        headers: One a column.
        rows: Cells, one a column.
        numeric: Columns that hold numbers.
        ids: Ids of the rows; none without.

    """
    right = set(numeric)
    names = list(ids)
    head = [
        el("th", cell, scope="col", class_="num" if i in right else None)
        for i, cell in enumerate(headers)
    ]
    body = []
    for at, row in enumerate(rows):
        cells = [
            el("th", cell, scope="row")
            if i == 0
            else el("td", cell, class_="num" if i in right else None)
            for i, cell in enumerate(row)
        ]
        body.append(
            el("tr", *cells, id=names[at] if names else None, tabindex=-1 if names else None)
        )
    whole = el(
        "table",
        el("caption", caption),
        el("thead", el("tr", *head)),
        el("tbody", *body),
    )
    return el("div", whole, class_="scroll", tabindex=0, role="region", aria_label=caption)


def details(summary: Child, *children: Child, is_open: bool = False) -> Html:
    """Return a part that opens without JavaScript."""
    return el("details", el("summary", summary), *children, open=is_open)


def items(children: Iterable[Child], **attributes: Attribute) -> Html:
    """Return a list."""
    return el("ul", *(el("li", child) for child in children), **attributes)
