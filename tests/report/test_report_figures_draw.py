"""Drawing: what is written on a figure, that it fits its page, and that its bytes stay the same."""

import functools
import hashlib
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET

import matplotlib as mpl
import pytest
from cases import each
from figure_tables import SUCCESS, tables, trial

from rltune.analysis.rates import RETRIEVAL
from rltune.report.figures import draw as draw_module
from rltune.report.figures.data_curves import CHANCE, ENTROPY
from rltune.report.figures.draw import draw, draw_bare, draw_kinds
from rltune.report.figures.draw_budget import short
from rltune.report.figures.draw_curves import TOGETHER
from rltune.report.figures.make import figure_data
from rltune.report.figures.notes import conditions_of
from rltune.report.figures.records import LeftOut
from rltune.report.figures.sheet import Sheet
from rltune.report.figures.style import RC, WIDTH, looks_of

NINE = [f"k={value:g}" for value in (0, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3)]
LONG = [
    "nofilter: every group of every batch counts, whatever its rewards",
    "filter_zero_and_everything_below_one_tenth_of_the_variance_of_the_rewards_of_a_batch",
    "top_p=0.9 with softmax over the standard deviations of the rewards of all groups",
]
STAMP = (
    "S8 warning, neither remedied nor accepted: dropping groups lowers the loss scale, so the "
    "learning rate is a hidden second axis"
)


def sweep(labels=("k=0.0", "k=0.1"), seeds=3, steps=(0, 10, 20), *, trials=None, **changes):
    """Return the data of every figure of a sweep whose conditions get worse one by one."""
    curves = {
        (label, seed): {step: 0.4 + step * (0.01 - 0.004 * i + 0.002 * seed) / 2 for step in steps}
        for i, label in enumerate(labels)
        for seed in range(seeds)
    }
    extra = [
        (name, {key: {step: level + step / 100 for step in steps} for key in curves})
        for name, level in ((RETRIEVAL, 0.5), (ENTROPY, 300.0))
    ]
    extra.append((CHANCE, {key: {steps[0]: 0.125} for key in curves}))
    marked = {"mark": changes.pop("mark", "ok")}
    rows = {key: {**marked, **(trials or {}).get(key, {})} for key in curves}
    return figure_data(tables(curves, extra=extra, trials=rows, **changes))


def svg(data):
    return draw(data, kind="svg").decode()


@functools.cache
def plain(name):
    """Return a figure of `sweep()` as SVG, drawn once."""
    return svg(sweep()[name])


def texts(drawn):
    """Return what is written on a figure: SVG keeps text as text."""
    found = ET.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")
    return ["".join(one.itertext()) for one in found]


def whole(drawn):
    return " ".join(texts(drawn))


CASES = {
    "nine": {"labels": NINE, "steps": tuple(range(0, 210, 10))},
    "one seed": {"seeds": 1},
    "one condition": {"labels": ["k=0.0"]},
    "one gate": {"steps": (0,)},
}  # fmt: skip


def laid_out(data):
    """Lay a figure out, see that it fits its page, and return what is written on it."""
    with mpl.rc_context({**mpl.rcParamsDefault, **RC}):
        sheet = Sheet(data.head)
        draw_module._draw(sheet, data)
        sheet.figure.draw_without_rendering()
        box = sheet.figure.get_tightbbox()
        wide, high = sheet.figure.get_size_inches()
    assert wide == pytest.approx(WIDTH)
    assert box.x0 >= -0.01
    assert box.y0 >= -0.01
    assert box.x1 <= wide + 0.01
    assert box.y1 <= high + 0.01
    return [text.get_text() for text in sheet.figure.findobj(mpl.text.Text)]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_every_figure_fits_its_page(case):
    for data in sweep(**CASES[case]).values():
        if not isinstance(data, LeftOut):
            laid_out(data)


def digests():
    """Return the digests of two figures in every kind."""
    data = sweep()
    return [
        hashlib.sha256(draw(data[name], kind=kind)).hexdigest()
        for name in ("learning_curves", "comparison")
        for kind in ("png", "svg", "pdf")
    ]


@pytest.mark.slow
def test_the_same_data_give_the_same_bytes_in_another_process():
    code = "from test_report_figures_draw import digests; print(digests())"
    path = os.pathsep.join([os.path.dirname(__file__), *sys.path])
    env = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "7"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    here = digests()
    assert done.stdout.strip() == str(here)
    assert len(set(here)) == 6


def test_a_persons_own_settings_change_nothing():
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "red"}):
        assert svg(sweep()["comparison"]) == plain("comparison")


def test_files_name_no_date_and_say_what_they_show():
    data = sweep()["comparison"]
    drawn = plain("comparison")
    root = ET.fromstring(drawn)
    name = "{http://www.w3.org/2000/svg}"
    assert root.get("role") == "img"
    ids = root.get("aria-labelledby").split()
    said = {one.get("id"): one.text for one in root if one.tag in (f"{name}title", f"{name}desc")}
    assert [said[one] for one in ids] == ["KL constraint: comparison", data.head.alt]
    assert "<dc:date>" not in drawn
    files = draw_kinds(data, ("pdf", "png"))
    assert b"CreationDate" not in files["pdf"]
    assert b"/Title (KL constraint: comparison)" in files["pdf"]
    assert b"KL constraint: comparison" in files["png"]


def test_every_mark_names_its_trial():
    for name in sweep():
        tips = set(re.findall(r'<g id="mark-\d+">\s*<title>(.*?)</title>', plain(name)))
        if name == "comparison":
            assert tips == {f"k=0.1-s{seed} minus k=0.0-s{seed}" for seed in range(3)}
        elif name != "heatmap":  # its cells are several trials each: heatmap.json names them
            assert tips == {f"{label}-s{seed}" for label in ("k=0.0", "k=0.1") for seed in range(3)}


def test_a_bare_figure_is_its_panels_alone_and_says_which_condition_each_mark_is_of():
    data = sweep()["learning_curves"]
    drawn, marks = draw_bare(data)
    assert "loss.kl_loss_coef" in drawn
    assert "loss.kl_loss_coef" not in draw_bare(data, has_legend=False)[0]
    for text in (data.head.title, data.head.run, "#ffffff", "<dc:date>"):
        assert text not in drawn
    assert {mark.condition for mark in marks.values()} == {"k=0.0", "k=0.1"}
    assert {mark.trial_id for mark in marks.values() if mark.trial_id} == {
        f"{label}-s{seed}" for label in ("k=0.0", "k=0.1") for seed in range(3)
    }
    assert all(f'id="{name}"' in drawn for name in marks)


def test_the_comparison_says_what_cannot_be_told_apart():
    (row,) = sweep()["comparison"].rows
    assert row.verdict == "not separable"
    assert row.sentence in whole(plain("comparison"))


def test_curves_name_conditions_levels_and_seeds():
    said = whole(plain("learning_curves"))
    for text in (
        "KL constraint", "0.0 (control)", "0.1", "loss.kl_loss_coef", "random floor", "ceiling",
        "start", "held-out success", "training step", "mean over 3 seeds", "95 % t interval",
        "Run kl-0",
    ):  # fmt: skip
        assert text in said, text


def test_a_measured_floor_is_a_band_that_says_so():
    levels = {"floor_kind": "measured", "floor_low": 0.15, "floor_high": 0.22}
    keys = [(name, seed) for name in ("k=0.0", "k=0.1") for seed in range(3)]
    measured = sweep(trials=dict.fromkeys(keys, levels))["learning_curves"]
    drawn, exact = svg(measured), plain("learning_curves")
    assert "measured" in whole(drawn)
    assert "measured" not in whole(exact)
    assert measured.panels[0].references[0].text == "random floor, measured 0.184 [0.15, 0.22]"
    assert drawn.count("opacity: 0.12") == exact.count("opacity: 0.12") + 1


def test_the_dynamics_name_their_panels():
    said = whole(plain("dynamics"))
    for text in ("held-out success", "retrieval accuracy", "reasoning entropy, nats", "chance"):
        assert text in said


def test_many_conditions_get_a_cell_each():
    found = sweep(NINE)["learning_curves"]
    assert len(found.head.conditions) > TOGETHER
    said = texts(svg(found))
    assert "in every panel: 0 (control)" in said
    assert {label.partition("=")[2] for label in NINE[1:]} <= set(said)


MARKED = {
    "labels": LONG, "mark": "audit failed; confounded; incomplete", "failed_rules": ("A1",),
    "confounded": "x", "open_warnings": (STAMP,),
    "trials": {(LONG[1], 1): {"status": "failed", "final": None, "wall_s": None}},
}  # fmt: skip


def test_a_sweep_of_long_names_that_proves_nothing_is_marked_and_fits_its_page():
    drawn = sweep(**MARKED)
    for data in drawn.values():
        said = laid_out(data)
        assert "AUDIT FAILED\nCONFOUNDED\nINCOMPLETE" in said
        assert "AUDIT FAILED (A1): this figure does not prove a comparison." in said
    assert "AUDIT FAILED" in texts(svg(drawn["comparison"]))


def test_one_seed_is_said_on_the_figure():
    for name in ("learning_curves", "comparison"):
        assert "1 seed: no claim can be made, and no interval is drawn." in whole(
            svg(sweep(seeds=1)[name])
        )


def test_intervals_are_bars_at_few_gates_and_bands_at_many():
    many = svg(sweep(steps=tuple(range(0, 120, 10)))["learning_curves"])
    assert plain("learning_curves").count("fill-opacity: 0.14") == 0  # 3 gates
    assert many.count("fill-opacity: 0.14") == 2


def test_no_two_conditions_look_the_same():
    conditions = conditions_of([trial(label, 0, is_control=not i) for i, label in enumerate(NINE)])
    looks = looks_of(conditions)
    assert len(set(looks.values())) == len(NINE)
    assert len({(look.marker, look.dash) for look in looks.values()}) == len(NINE)  # in grey, too


@pytest.mark.slow
def test_a_dollar_is_a_dollar_and_a_missing_character_no_warning():
    title = "cost $5 and a_$^{ 强化学习"
    files = draw_kinds(sweep(title=title)["heatmap"], ("svg", "pdf"))
    assert title in texts(files["svg"].decode())
    assert files["pdf"].startswith(b"%PDF")


def test_a_metric_that_no_seed_differs_in_is_drawn():
    still = {(label, seed): {0: 0.5, 10: 0.5} for label in ("k=0.0", "k=0.1") for seed in range(3)}
    for name, data in figure_data(tables(still)).items():
        if name != "dynamics":
            assert SUCCESS not in whole(svg(data))


@each(
    ("value", "text"),
    [(0, "0"), (5, "5"), (999, "999"), (1280, "1.28k"), (2.5e6, "2.5M"), (3e9, "3G"), (0.5, "0.5")],
)
def test_large_numbers_are_short(value, text):
    assert short(value) == text


def test_a_long_word_is_broken_at_its_joints():
    with mpl.rc_context({**mpl.rcParamsDefault, **RC}):
        sheet = Sheet(sweep()["budget"].head)
        assert sheet.wrap("one two", width=5.0) == "one two"
        wide = sheet.width("filter_zero_")
        assert sheet.wrap("filter_zero_and", width=wide) == "filter_zero_\nand"
        assert sheet.wrap("aaaaaaaa", width=sheet.width("aaa")) == "aaa\naaa\naa"
