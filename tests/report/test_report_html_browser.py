"""The page in a real browser: offline, by keyboard, on a phone, dark, on paper, unscripted."""

import sys
from pathlib import Path

import pytest
from lineage_rows import add_lineage
from replay_rows import add_usual
from run_folders import CONTROL, TREATED, finished_sweep

from rltune.report.html.gather import gather
from rltune.report.html.page import page
from rltune.store.run_folder import read_folder

sys.path.insert(0, str(Path(__file__).parent.parent))
from browser import NAMES, browser, find_chromium

pytestmark = pytest.mark.skipif(
    find_chromium() is None, reason=f"needs a Chromium: none of {', '.join(NAMES)} is installed"
)
FOCUS = "document.activeElement"
REPLAY = "document.querySelector('#replay-1')"
SEEN = f"[...{REPLAY}.querySelectorAll('.turn')].map(t => t.checkVisibility())"


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Return the page of a finished sweep of six trials."""
    writer = finished_sweep(tmp_path_factory.mktemp("page"))
    add_usual(writer)
    add_lineage(writer)
    path = writer.root / "report.html"
    path.write_text(page(gather(read_folder(writer.run))), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def chromium():
    with browser() as started:
        yield started


def test_it_is_quiet_and_asks_for_nothing(chromium, file):
    chromium.open(file)
    assert chromium.complaints() == []
    assert [one for one in chromium.requests() if not one.startswith("data:")] == [file.as_uri()]
    assert chromium.js("document.documentElement.className") == "js"
    assert chromium.js("document.title") == "KL constraint · rltune report"


def test_a_foreign_script_would_not_run(chromium, file):
    evil = file.with_name("evil.html")
    text = file.read_text(encoding="utf-8")
    evil.write_text(text.replace("<main", "<script>window.evil = 1</script><main"))
    chromium.open(evil)
    assert chromium.js("window.evil") is None
    assert any("Content Security Policy" in said for said in chromium.complaints())


def test_arrow_keys_step_through_a_replay(chromium, file):
    chromium.open(file)
    assert chromium.js(SEEN) == [True, False, False, False]
    chromium.js(f"{REPLAY}.querySelector('.turns').focus()")
    for key, at in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("End", 3),
                    ("ArrowRight", 3), ("Home", 0), ("ArrowLeft", 0)):  # fmt: skip
        chromium.key(key)
        assert chromium.js(SEEN) == [i == at for i in range(4)], key
        assert chromium.js(f"{REPLAY}.querySelector('.where').textContent") == f"{at + 1} of 4"
    other = "document.querySelector('#replay-2 .where').textContent"
    assert chromium.js(other) == "1 of 4"


def test_the_buttons_of_a_replay_work_by_keyboard(chromium, file):
    chromium.open(file)
    chromium.js(f"{REPLAY}.querySelector('[data-go=\"1\"]').focus()")
    chromium.key("Enter")
    assert chromium.js(SEEN) == [False, True, False, False]
    chromium.key("Tab")
    assert chromium.js(f"{FOCUS}.textContent") == "All turns"
    chromium.key("Enter")
    assert chromium.js(SEEN) == [True] * 4
    assert chromium.js(f"{FOCUS}.getAttribute('aria-pressed')") == "true"
    before = f"{REPLAY}.querySelector('[data-go=\"-1\"]').getAttribute('aria-disabled')"
    chromium.key("Home")
    assert (chromium.js(SEEN), chromium.js(before)) == ([True, False, False, False], "true")


def test_the_first_tab_is_the_way_past_the_head_and_focus_is_seen(chromium, file):
    chromium.open(file)
    chromium.key("Tab")
    assert chromium.js(f"{FOCUS}.textContent") == "Skip to the results"
    assert chromium.js(f"{FOCUS}.getBoundingClientRect().left") >= 0
    assert chromium.js(f"getComputedStyle({FOCUS}).outlineStyle") == "solid"
    chromium.key("Enter")
    assert chromium.js("location.hash") == "#results"


def test_every_control_can_be_reached_and_has_a_name(chromium, file):
    chromium.open(file)
    unnamed = """[...document.querySelectorAll('a, button, summary, [tabindex="0"]')].filter(
        e => !(e.getAttribute('aria-label') || e.textContent.trim())).length"""
    assert chromium.js(unnamed) == 0
    small = """[...document.querySelectorAll('button')].filter(
        e => e.checkVisibility() && e.getBoundingClientRect().height < 24).length"""
    assert chromium.js(small) == 0


def test_the_legend_hides_and_shows_a_condition_everywhere(chromium, file):
    chromium.open(file)
    seen = """[...document.querySelectorAll('[data-c="1"]')].filter(
        e => getComputedStyle(e).display !== 'none').length"""
    everything = chromium.js(seen)
    assert everything >= 4
    chromium.js("document.querySelector('[data-toggle=\"1\"]').focus()")
    chromium.key("Enter")
    assert chromium.js(seen) == 0
    assert chromium.js(f"{FOCUS}.getAttribute('aria-pressed')") == "false"
    chromium.key("Enter")
    assert chromium.js(seen) == everything


def test_a_mark_of_a_figure_leads_to_its_trial(chromium, file):
    chromium.open(file)
    chromium.js(f"document.querySelector('a[aria-label^=\"{TREATED}, seed 1\"]').focus()")
    chromium.key("Enter")
    row = chromium.js("document.querySelector('tr:target').textContent")
    assert TREATED in row
    assert "-s1-" in row
    assert CONTROL not in row


@pytest.mark.parametrize("width", [320, 360, 390, 768])
def test_nothing_is_wider_than_the_screen(chromium, file, width):
    chromium.open(file, width=width, height=800)
    chromium.js("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert chromium.js("document.documentElement.scrollWidth") <= width


def test_a_cell_of_a_table_on_a_phone_is_wide_enough_to_read(chromium, file):
    chromium.open(file, width=360, height=740)
    chromium.js("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    narrow = """[...document.querySelectorAll('tbody th, tbody td')].filter(e =>
        e.textContent.length > 20 && e.getBoundingClientRect().width < 100).length"""
    assert chromium.js("document.querySelectorAll('#lineage tbody th').length") > 1
    assert chromium.js(narrow) == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_light_and_dark(chromium, file, scheme):
    chromium.open(file, prefers_color_scheme=scheme)
    contrast = """(() => {
        const light = c => { const v = c.match(/[\\d.]+/g).slice(0, 3).map(x => x / 255)
            .map(x => x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
            return 0.2126 * v[0] + 0.7152 * v[1] + 0.0722 * v[2]; };
        const ground = e => { for (; e; e = e.parentElement) {
            const c = getComputedStyle(e).backgroundColor;
            if (!/, 0\\)$|transparent/.test(c) && !c.includes('/')) return c; } return null; };
        const texts = 'p, td, th, h1, h2, h3, h4, a, li, code, .state, button';
        const all = [...document.querySelectorAll(texts)]
            .filter(e => e.textContent.trim() && !e.closest('svg') && e.checkVisibility()
                && !e.querySelector('[class*=" up"], [class*=" down"]')
                && !e.closest('[class*=" up"], [class*=" down"]'));
        return Math.min(...all.map(e => {
            const a = light(getComputedStyle(e).color), b = light(ground(e));
            return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05); }));
    })()"""
    assert chromium.js(contrast) >= 4.5  # WCAG AA
    paper = chromium.js("getComputedStyle(document.body).backgroundColor")
    assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(15, 19, 24)"}[scheme]


def test_reduced_motion_scrolls_at_once(chromium, file):
    behaviour = "getComputedStyle(document.documentElement).scrollBehavior"
    chromium.open(file)
    assert chromium.js(behaviour) == "smooth"
    chromium.open(file, prefers_reduced_motion="reduce")
    assert chromium.js(behaviour) == "auto"


def test_without_javascript_every_turn_is_there_and_no_dead_button(chromium, file):
    chromium.open(file, scripts=False)
    # The protocol still evaluates when the page may not.
    assert chromium.js("document.documentElement.className") == ""
    assert chromium.js(SEEN) == [True] * 4
    assert chromium.js(f"{REPLAY}.querySelector('.controls').checkVisibility()") is False
    assert chromium.complaints() == []


def test_on_paper_every_turn_is_there_and_nothing_to_press(chromium, file):
    chromium.open(file)
    chromium.call("Emulation.setEmulatedMedia", media="print")
    assert chromium.js(SEEN) == [True] * 4
    assert chromium.js(f"{REPLAY}.querySelector('.controls').checkVisibility()") is False
    assert chromium.js("document.querySelector('nav').checkVisibility()") is False
    chromium.js("dispatchEvent(new Event('beforeprint'))")
    assert chromium.js("document.querySelectorAll('details:not([open])').length") == 0
    chromium.js("dispatchEvent(new Event('afterprint'))")
    assert chromium.js("document.querySelectorAll('details:not([open])').length") > 0
