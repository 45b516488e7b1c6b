"""The built site: strict, whole without a network, and readable by everyone."""

import os
import re
import subprocess
import sys
from functools import cache
from html.parser import HTMLParser
from importlib.util import find_spec
from urllib.parse import unquote, urlsplit

import pytest
from literals import ROOT

from rltune.cli.app import COMMANDS, LINEAGE
from rltune.spec.keys import config_keys
from rltune.spec.schema.trial import TrialConfig

NEEDED = ("mkdocs", "material", "latex2mathml")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not all(map(find_spec, NEEDED)), reason="pip install 'rltune[docs]' to build the site"
    ),
]
LOADED = {"script": "src", "link": "href", "img": "src"}


class Page(HTMLParser):
    """What the checks look at in one page."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.loaded, self.unnamed, self.headings = [], [], [], [], []
        self.words, self.language = [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        if "id" in found:
            self.ids.append(found["id"])
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        if tag in LOADED and found.get(LOADED[tag]):
            self.loaded.append(found[LOADED[tag]])
        if tag == "img" and not (found.get("alt") or "").strip():
            self.unnamed.append(found.get("src"))
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag == "html":
            self.language = found.get("lang")

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    path = os.pathsep.join([str(ROOT), str(ROOT / "envs"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site):
    return {p.name: Page(p.read_text(encoding="utf-8")) for p in site.glob("*.html")}


@cache
def ids_of(page):
    """Return the anchors of a page, in whatever folder it is."""
    return Page(page.read_text(encoding="utf-8")).ids


def test_every_page_is_built(pages):
    sources = {f"{path.stem}.html" for path in (ROOT / "docs").glob("*.md")}
    assert set(pages) == sources | {"404.html"}
    assert len(sources) > 14


def test_every_link_leads_somewhere(site, pages):
    dead = []
    for name, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or name == "404.html":  # the 404 page links from the root of a server
                continue
            target = site / unquote(parts.path) if parts.path else site / name
            anchor = unquote(parts.fragment)
            if target.is_dir() or (target.is_file() and not anchor):
                continue
            if not target.is_file() or anchor not in ids_of(target):
                dead.append((name, link))
    assert dead == []


def test_nothing_is_loaded_from_elsewhere(pages):
    far = {link for page in pages.values() for link in page.loaded if urlsplit(link).netloc}
    assert far == set()


def test_ids_are_unique(pages):
    for name, page in pages.items():
        assert sorted(page.ids) == sorted(set(page.ids)), name


def test_pictures_say_what_they_show(pages):
    assert {name: page.unnamed for name, page in pages.items() if page.unnamed} == {}


def test_headings_begin_once_and_skip_no_level(pages):
    for name, page in pages.items():
        assert page.headings.count(1) == 1, name
        steps = zip(page.headings, page.headings[1:], strict=False)
        assert all(deeper - level <= 1 for level, deeper in steps), name
        assert page.language == "en", name


def test_formulas_are_drawn_without_a_script(site):
    text = (site / "algorithms.html").read_text(encoding="utf-8")
    formulas = re.findall(r"<math.*?</math>", text, re.DOTALL)
    assert len(formulas) > 60
    assert [formula for formula in formulas if "\\" in formula] == []  # a command that was not read
    assert "arithmatex" not in text
    assert "$" not in re.sub(r"<(code|script).*?</\1>", "", text, flags=re.DOTALL)


def test_every_config_key_is_on_its_page(pages):
    words = set(pages["config.html"].words)
    leaves = [key for key, is_leaf in config_keys().items() if is_leaf and key != "reward"]
    lists = {"reward.terms.score": "reward.terms[].score"}
    assert [key for key in leaves if lists.get(key, key) not in words] == []
    assert len(leaves) > 150
    sections = set(TrialConfig.model_fields) - {"seed"}
    assert sections <= set(pages["config.html"].ids)


def test_a_sweep_file_key_has_its_default_and_its_sentence(site):
    text = (site / "sweep-file.html").read_text(encoding="utf-8")
    row = re.search(r'<td><code id="metric.mode">metric.mode</code></td>.*?</tr>', text, re.DOTALL)
    said = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", row[0])).strip()
    assert said == 'metric.mode max , min "max" Whether more or less is better.'


def test_every_command_is_on_its_page_with_its_options(pages):
    words = pages["commands.html"].words
    names = {entry.name for entry in COMMANDS} | {f"lineage {entry.name}" for entry in LINEAGE}
    assert {f"rltune {name}" for name in names} <= set(words)
    assert {"--max-concurrent N", "--set KEY=VALUE", "TRIAL", "--again"} <= set(words)
    assert "rltune sweep sweeps/quickstart.yaml" in "".join(words)


def test_files_beside_the_docs_are_there(site):
    copied = {path.name for path in (site / "repository").rglob("*") if path.is_file()}
    assert {"my_advantage.py", "kl.yaml", "01_quickstart.ipynb"} <= copied
