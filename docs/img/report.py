"""The pictures of docs/report.md: `python docs/img/report.py RUN_FOLDER`, with a Chromium.

Those in the repository are of sweeps/quickstart.yaml with seeds 0 to 2, 8 steps and gate.every 4.
"""

import sys
import tempfile
from pathlib import Path

from PIL import Image

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests"))
from browser import Browser, browser  # noqa: E402

from rltune.report.html.gather import gather  # noqa: E402
from rltune.report.html.page import page  # noqa: E402
from rltune.store.run_folder import find_run, read_folder  # noqa: E402


def pictures(run: Path) -> None:
    """Write the page of a run folder as it looks on a desktop, on a phone and in the dark."""
    with tempfile.TemporaryDirectory() as folder, browser() as chromium:
        file = Path(folder) / "report.html"
        file.write_text(page(gather(read_folder(find_run(run, run)))), encoding="utf-8")
        chromium.open(file)
        _save(chromium, "report-desktop", height=1150)
        chromium.open(file, width=360, height=740)
        chromium.js("document.querySelector('#replay-1 [data-go=\"1\"]').click()")
        _save(chromium, "report-phone", at="#replay-1", height=740)
        chromium.open(file, prefers_color_scheme="dark")
        late = "document.querySelectorAll('#replay-3 [data-all], #replay-4 [data-all]')"
        chromium.js(f"{late}.forEach(button => button.click())")
        _save(chromium, "report-dark", at="#replays", height=1150)


def _save(chromium: Browser, name: str, *, height: int, at: str = "body") -> None:
    top = chromium.js(f"document.querySelector('{at}').getBoundingClientRect().top + scrollY")
    width = chromium.js("innerWidth")
    path = HERE / f"{name}.png"
    chromium.picture(path, clip=(0, max(0, top - 8), width, height))
    Image.open(path).convert("RGB").quantize(128).save(path, optimize=True)


if __name__ == "__main__":
    pictures(Path(sys.argv[1]))
