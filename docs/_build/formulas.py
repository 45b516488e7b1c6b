"""Formulas: from the LaTeX that pymdownx.arithmatex marks to MathML."""

import html as html_text
import re

from latex2mathml.converter import convert

_INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
_BLOCK = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)


def with_mathml(html: str) -> str:
    """Return HTML with every marked formula as MathML."""
    html = _INLINE.sub(lambda found: _mathml(found[1], display="inline"), html)
    return _BLOCK.sub(lambda found: f"<p>{_mathml(found[1], display='block')}</p>", html)


def _mathml(latex: str, *, display: str) -> str:
    """Return one formula; its LaTeX is kept as the text for those who cannot see it."""
    source = html_text.unescape(latex).strip()
    return convert(source, display=display)
