"""Draw what a terminal showed as an SVG, without fonts from the network.

tmux capture-pane -p -e -t PANE | python docs/img/terminal.py TITLE > docs/img/live.svg
"""

import io
import re
import sys

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.ansi import AnsiDecoder
from rich.console import Console

ONLINE_FONTS = re.compile(r"@font-face \{\{.*?\}\}", re.DOTALL)


def drawing(screen: str, title: str) -> str:
    """Return the SVG of a screen with its escape codes."""
    lines = list(AnsiDecoder().decode(screen.strip("\n")))  # a style goes on over line ends
    width = max(len(line.plain.rstrip()) for line in lines)
    console = Console(record=True, width=width + 1, file=io.StringIO(), force_terminal=True)
    for line in lines:
        line.rstrip()
        console.print(line, no_wrap=True, overflow="ignore")
    console.print()
    return console.export_svg(title=title, code_format=ONLINE_FONTS.sub("", CONSOLE_SVG_FORMAT))


if __name__ == "__main__":
    sys.stdout.write(drawing(sys.stdin.read(), " ".join(sys.argv[1:])))
