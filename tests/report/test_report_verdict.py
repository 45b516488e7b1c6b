"""One sweep, one verdict: every surface says it in the same words."""

import re
from functools import cache
from types import SimpleNamespace

import pytest
from goldens import drawn
from run_folders import CONTROL, CRASH, SWEEP, FolderWriter

from rltune import load_sweep
from rltune.analysis.audit import audit_folder
from rltune.analysis.lookup import find_side
from rltune.analysis.summary import close_sweep
from rltune.analysis.tables import SummaryRow
from rltune.errors import InputError
from rltune.report.compare_text import compare_and_say, compared_view
from rltune.report.export import write_tables
from rltune.report.figures.draw import draw
from rltune.report.html import drawing
from rltune.report.html import page as page_module
from rltune.report.html.gather import gather
from rltune.report.render_run import closing_view
from rltune.report.table_files import read_csv
from rltune.store.files import write_json_atomic
from rltune.store.run_folder import read_folder, read_records

OF_500 = ("budget.steps: 20", "budget.steps: 20\n  gate.tasks: 500")


def label(value):
    return f"kl_loss_coef={value}"


def sweep_of(tmp_path, *values):
    """Return the writer of a sweep of KL coefficients, its control finished at a rate of 0.4."""
    text = SWEEP.replace(*OF_500).replace("[0.0, 0.1]", str([0.0, *values]))
    writer = FolderWriter(tmp_path, text, tasks=500)
    for seed in range(3):
        writer.finish(writer.spec(CONTROL, seed), gates({0: 300, 10: 350, 20: 400}))
    return writer


def gates(thousandths):
    """Return step -> solved of 500 tasks."""
    return {step: rate // 2 for step, rate in thousandths.items()}


def finish(writer, value, finals, *, step=20, **options):
    """Finish a condition; the last rate of each seed, in thousandths, is even."""
    for seed, rate in enumerate(finals):
        rates = {0: 300, 10: 350, step: rate}
        writer.finish(writer.spec(label(value), seed), gates(rates), **options)


def plain(text):
    return re.sub(r"\s+", " ", text.replace("\u00a0", " "))


def compare_with_control(writer, value):
    """Return the verdict of `compare`, and what it prints; of a failed condition its refusal."""
    sides = [find_side(name, writer.run.path, writer.root)[0] for name in (label(value), CONTROL)]
    try:
        found = compare_and_say(*sides)
    except InputError as error:
        text = str(error)
        return text.removeprefix(f"{label(value)}: "), text
    assert load_sweep(writer.run.path).compare(str(value), "0.0") == found
    return found.verdict, drawn(compared_view(found), 400)


@cache
def drawn_folder(run, root):
    """Return what the surfaces of all conditions share: the folder's tables, page and figure."""
    folder = read_folder(run)
    read = read_records(folder)
    audit = audit_folder(folder, read)
    out = root / "out"
    out.mkdir()
    write_tables(folder, read, audit, out)
    with pytest.MonkeyPatch.context() as patch:
        for module in (drawing, page_module):  # its figures would say what the page says, too
            patch.setattr(module, "has_matplotlib", lambda: False)
        html = re.sub(r"(?s)<(style|script)>.*?</\1>", "", page_module.page(gather(folder)))
    sweep = load_sweep(run.path)
    figure = sweep.figure("comparison")
    return SimpleNamespace(
        table=read_csv(out / "summary.csv", SummaryRow),
        html=re.sub(r"<[^>]+>", " ", html),
        verdicts=sweep.verdicts(),
        summary=sweep.summary(),
        figure=figure.rows,
        svg=re.sub(r"<[^>]+>", " ", draw(figure, kind="svg").decode()),
        terminal=drawn(closing_view(close_sweep(folder, read.records, audit), width=400), 400),
    )


@cache
def surfaces(writer, value):
    """Return surface -> (the whole text of it, the words of the verdict where it is data)."""
    made = drawn_folder(writer.run, writer.root)

    def final(rows):
        (row,) = (r for r in rows if (r.condition, r.at, r.method) == (label(value), "final", "t"))
        return row

    def of_condition(rows):
        (row,) = (row for row in rows if row.condition == label(value))
        return row

    compared, view = compare_with_control(writer, value)
    said, summed = of_condition(made.verdicts), final(made.summary)
    return {
        "terminal": (made.terminal, said.sentence),
        "csv": (final(made.table).verdict,) * 2,
        "figure": (made.svg, of_condition(made.figure).sentence),
        "html": (made.html, said.sentence),
        "compare": (view, compared),
        "api verdicts": (said.words, said.words),
        "api summary": (summed.verdict, summed.verdict),
    }


def require_words(writer, value, words):
    for name, (text, data) in surfaces(writer, value).items():
        assert words in plain(text), (name, plain(text))
        assert data.startswith(words), name


def test_two_differences_that_three_rules_judged_three_ways(tmp_path):
    """t = 14 and t = 5 of 3 seeds: p = 0.005 and 0.038, by Holm 0.010 and 0.038."""
    writer = sweep_of(tmp_path, 0.1, 0.2)
    finish(writer, 0.1, (542, 562, 582))  # 0.142 0.162 0.182: 0.162 sqrt 3 / 0.02 = 14.03
    finish(writer, 0.2, (438, 458, 478))  # 0.038 0.058 0.078: 0.058 sqrt 3 / 0.02 = 5.02
    require_words(writer, 0.1, "above")
    require_words(writer, 0.2, "above")
    texts = {name: plain(text) for name, (text, _) in surfaces(writer, 0.1).items()}
    for name in ("terminal", "figure", "html"):
        assert "above the control (n = 3, Holm p = 0.01, unadjusted p = 0.005)" in texts[name]
        assert "above the control (n = 3, Holm p = 0.037, unadjusted p = 0.037)" in texts[name]
    assert "p = 0.005 unadjusted, p = 0.01 by Holm over 2 comparisons" in texts["compare"]


@pytest.mark.slow
def test_a_third_condition_takes_the_claim_of_the_second_everywhere(tmp_path):
    writer = sweep_of(tmp_path, 0.1, 0.2, 0.3)
    finish(writer, 0.1, (542, 562, 582))
    finish(writer, 0.2, (438, 458, 478))
    finish(writer, 0.3, (400, 410, 390))
    require_words(writer, 0.1, "above")
    require_words(writer, 0.2, "not separable")
    require_words(writer, 0.3, "not separable")


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """One early-stopped, one failed, one partly stopped, two that are one run up to a factor."""
    writer = sweep_of(tmp_path_factory.mktemp("mixed"), 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
    finish(writer, 0.1, (842, 850, 846), step=12, stopped="reward collapsed")
    for seed in range(3):
        writer.fail(writer.spec(label(0.2), seed), CRASH)
    finish(writer, 0.3, (542, 562))
    writer.finish(
        writer.spec(label(0.3), 2), gates({0: 300, 10: 350, 12: 320}), stopped="reward collapsed"
    )
    finish(writer, 0.4, (442, 562, 582))
    finish(writer, 0.5, (940, 950, 956))
    finish(writer, 0.6, (940, 950, 956))
    warnings = [
        {"rule": "S6", "severity": "warning", "code": "S6.proportional", "accepted_reason": reason,
         "message": f"{a} and {b} are the same run up to the factor 1.07.", "remedy": "Drop one.",
         "conditions": [a, b]}
        for a, b, reason in (
            (label(0.5), label(0.6), None),
            (CONTROL, label(0.4), None),
            (label(0.6), label(0.4), "to show the luck"),
        )
    ]  # fmt: skip
    proof = {"ok": True, "errors": [], "warnings": warnings, "axis_table": []}
    write_json_atomic(writer.run.comparability, {**proof, "allow_confounded": None})
    return writer


MIXED = [
    (0.1, "stopped early at 12"),
    (0.2, "no verdict (0 of 3 seeds, 3 failed; at least 3 are needed)"),
    (0.3, "stopped early at 12 (1 of 3 seeds)"),
    (0.4, "no verdict (the same run up to a factor as the control)"),
    (0.5, "above"),
]


@pytest.mark.parametrize(("value", "words"), MIXED)
def test_what_is_not_ranked_is_said_in_the_same_words_everywhere(mixed, value, words):
    require_words(mixed, value, words)


def test_a_proportional_condition_is_named_by_every_surface(mixed):
    for name, (text, _) in surfaces(mixed, 0.5).items():
        assert f"the same run up to a factor as {label(0.6)}" in plain(text), name
    texts = {name: plain(text) for name, (text, _) in surfaces(mixed, 0.5).items()}
    stamp = "S6.proportional warning, neither remedied nor accepted"
    for name in ("terminal", "figure", "html", "compare"):
        assert stamp in texts[name], name
    assert "to show the luck" not in texts["figure"]


def trials(writer, *names):
    return [find_side(name, writer.run.path, writer.root)[0] for name in names]


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("0.1@0", "0.0@0"), "stopped early at 12"),
        (("0.0@0", "0.1@0"), f"no verdict ({label(0.1)}@0 stopped early at 12)"),
        (("0.1@0", "0.3@2"), "above at step 12"),
        (("0.5@0", "0.0@0"), "above"),
        (("0.5@0", "0.6@1"), f"no verdict (the same run up to a factor as {label(0.6)}@1)"),
    ],
)
def test_single_trials_of_other_lengths_are_not_ranked_either(mixed, names, words):
    found = compare_and_say(*trials(mixed, *names))
    assert (found.unit, found.verdict) == ("tasks", words)
    assert (found.p is None) is ("stopped early" in words)
    assert found.p_holm is None  # two trials are no conditions of a sweep


def test_conditions_of_two_sweeps_are_one_comparison_by_itself(mixed, tmp_path):
    other = sweep_of(tmp_path, 0.1)
    finish(other, 0.1, (542, 562, 582))
    far = find_side("0.5", mixed.run.path, mixed.root)[0]
    found = compare_and_say(far, find_side("0.1", other.run.path, other.root)[0])
    assert (found.verdict, found.p_holm) == ("above", None)
    assert "They belong to two sweeps: p is for this comparison alone, without adjustment." in (
        found.notes
    )
    early = find_side("0.1", mixed.run.path, mixed.root)[0]
    found = compare_and_say(early, find_side("0.1", other.run.path, other.root)[0])
    assert (found.verdict, found.p) == ("stopped early at 12", None)


def test_two_conditions_but_the_control_are_adjusted_over_all_pairs(mixed):
    found = compare_and_say(*(find_side(str(v), mixed.run.path, mixed.root)[0] for v in (0.5, 0.4)))
    assert found.comparisons == 21  # of 7 conditions
    assert "Holm over 21 comparisons of the sweep" in found.sentence


def test_an_early_step_that_all_reached_is_named_everywhere(tmp_path):
    writer = FolderWriter(tmp_path, SWEEP.replace(*OF_500), tasks=500)
    for value, finals in ((0.0, (400, 400, 400)), (0.1, (580, 560, 600))):
        finish(writer, value, finals, step=12, stopped="reward collapsed")
    for name, (text, data) in surfaces(writer, 0.1).items():
        assert re.search(r"above( the control| \S+0\.0)? at step 12", plain(text)), name
        assert "at step 12" in data, name
