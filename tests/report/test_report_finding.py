"""A finding: what its page says, and that no doctored folder passes for an honest one."""

import re
import shutil
from dataclasses import replace

import pytest
from publishing import CODE, drawn_once, problems_in, replace_in, seal_again, sources_at
from run_folders import CONTROL, CRASH, SWEEP, TREATED, FolderWriter, finished_sweep

from rltune.analysis.tables import PairRow
from rltune.errors import InputError, StoreError
from rltune.lineage.record import RowContext, row_for
from rltune.lineage.table import LineageStore
from rltune.maths.significance import mcnemar_p
from rltune.report.finding.collect import collect
from rltune.report.finding.files import (
    noted,
    read_finding,
    require_place,
    write_finding,
)
from rltune.report.finding.page import answer_in_short, page
from rltune.report.finding.records import nested
from rltune.report.finding.results import levels
from rltune.report.finding.verify import verify
from rltune.store.files import read_json, write_json_atomic
from rltune.store.run_folder import read_folder

assert drawn_once  # used by all tests here, too

PREDICTED = SWEEP.replace("  control: 0.0\n", '  control: 0.0\n  expect: {0.1: "-0.2 success"}\n')


def add_rows(writer):
    """Write the lineage row of every trial that has ended."""
    store = LineageStore(writer.run.results, "heldout/success_rate", "max")
    for spec in writer.specs:
        trial = writer.run.trial(spec.trial_id)
        if outcome := trial.read_done() or trial.read_failed():
            context = RowContext(
                metric_name="heldout/success_rate",
                metric_mode="max",
                timestamp="2026-01-01T00:00:00Z",
                commit="c0ffee",
                job_name="launch-0001",
            )
            store.append(row_for(spec, outcome, store.read().rows, context))


def failed_sweep(writer):
    """Let all trials end, the condition's last seed in a crash."""
    for seed in (0, 1, 2):
        writer.finish(writer.spec(CONTROL, seed), {0: 4, 10: 5, 20: 6})
        if seed < 2:
            writer.finish(writer.spec(TREATED, seed), {0: 4, 10: 4, 20: 3})
    writer.fail(writer.spec(TREATED, 2), CRASH)


def finding_of(writer, **asked):
    return collect(read_folder(writer.run), CODE, name="kl", **asked)


@pytest.fixture(scope="module")
def writer(tmp_path_factory):
    writer = finished_sweep(tmp_path_factory.mktemp("finished"))
    add_rows(writer)
    return writer


@pytest.fixture(scope="module")
def published(writer, tmp_path_factory):
    out = tmp_path_factory.mktemp("published") / "kl"
    write_finding(noted(finding_of(writer, metrics=["budget/rollouts"]), "A pilot said so."), out)
    return out


@pytest.fixture
def folder(published, tmp_path):
    return shutil.copytree(published, tmp_path / "kl")


def problems_of(folder):
    return problems_in(verify(folder, sources_at=sources_at))


def test_the_page_answers_first_and_holds_what_a_reviewer_asks(published):
    text = (published / "index.md").read_text()
    # differences 0.2 - 0.6, 0.3 - 0.7, 0.3 - 0.8: mean -0.433; s is 0.058, below the step of ten
    # tasks, so 0.1 counts: 4.303 * 0.1 / sqrt(3) = 0.248
    answer = "ends **below the control**: −0.433 [−0.682, −0.185] (n = 3, p = 0.017)"
    assert f"- `kl_loss_coef=0.1` {answer}" in text
    assert "| `kl_loss_coef=0.0` (control) | 3 | 0.700 [0.452, 0.948] | – | – | – | – |" in text
    assert "- random play (floor): 0.184\n- perfect play (ceiling): 0.950" in text
    assert "## Notes of the author\n\nA pilot said so." in text
    assert "| `kl_loss_coef=0.1` | 160 | 4,000 | 40 | 44 s |" in text
    assert "The audit passed: what ran differs in the axis alone. 6 of 6 trials" in text
    assert "with it 1 key: `loss.use_kl_loss`" in text
    assert "The sweep file predicts nothing." in text
    for name in ("trials.csv", "gates.csv", "summary.csv", "results.tsv", "manifest.json"):
        assert f"[{name}]({name})" in text
    assert '<img src="figure.svg" alt="Held-out success over training, by condition"' in text


def test_a_seed_alone_is_told_apart_from_all_of_them(published):
    # seed 0: the control solves tasks 0 to 5, the condition 0 and 1; only the control solves 4
    assert mcnemar_p(0, 4) == 0.125
    assert read_finding(published).pairs[0] == PairRow(
        TREATED, 0, 20, "heldout/success_rate", 10, both=2, only_condition=0, only_control=4
    )
    text = (published / "index.md").read_text()
    assert "| −0.400 (p = 0.12) | −0.400 (p = 0.12) | −0.500 (p = 0.062) | −0.433" in text
    assert "In bold: p < 0.05, unadjusted, 0 of 3 pairs." in text


def test_other_measures_are_means_from_gate_to_gate(published):
    rows = [row for row in read_finding(published).measures if row.seed == 0]
    assert [(row.step, row.n_steps) for row in rows[:2]] == [(10, 10), (20, 10)]
    assert [row.value for row in rows[:2]] == [44.0, 124.0]  # 8 * mean of 1..10, of 11..20
    text = (published / "index.md").read_text()
    assert "| `kl_loss_coef=0.1` | 3 | 124 | +0 |" in text
    assert "Of a seed: the mean over the training steps since the last gate but one. Of" in text


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        (["heldout/reward_mean"], "Of a seed: the value at the last gate. Of"),
        (
            ["budget/rollouts", "heldout/reward_mean"],
            "since the last gate but one (`heldout/` measures: the value at the last gate). Of",
        ),
    ],
)
def test_a_held_out_measure_is_that_of_the_last_gate(published, metrics, words):
    finding = read_finding(published)
    one = replace(finding.measures[0], metric="heldout/reward_mean", n_steps=1)
    manifest = {**finding.manifest, "metrics": metrics}
    measures = (*finding.measures, one)
    assert words in page(replace(finding, manifest=manifest, measures=measures))


@pytest.mark.parametrize(
    ("told", "cells"),
    [
        ("-0.2 success", "right | yes"),
        ("+0.1 success", "wrong | no"),
        ("0.00 success", "zero predicted | no"),  # the interval does not hold zero
    ],
)
def test_a_prediction_stands_beside_its_outcome(tmp_path, told, cells):
    writer = FolderWriter(tmp_path, PREDICTED.replace("-0.2 success", told))
    for seed, last in enumerate((6, 7, 8)):
        writer.finish(writer.spec(CONTROL, seed), {0: 4, 10: 5, 20: last})
        writer.finish(writer.spec(TREATED, seed), {0: 4, 10: 5, 20: 3})
    row = f"| `kl_loss_coef=0.1` | {told} | −0.400 [−0.648, −0.152] | {cells} |"
    assert row in page(finding_of(writer))


def test_a_sweep_without_a_verdict_says_why(tmp_path):
    writer = FolderWriter(tmp_path)
    failed_sweep(writer)
    text = page(finding_of(writer))
    assert "**INCOMPLETE: 5 of 6 trials have a result.**" in text
    assert "**Failed: kl_loss_coef=0.1@2.**" in text
    assert "is in no mean: RuntimeError: out of memory" in text
    assert answer_in_short(finding_of(writer)).startswith("no verdict (2 of 3 seeds, 1 failed")


@pytest.mark.parametrize(("seeds", "is_told"), [(7, True), (3, False)])
def test_a_condition_below_random_play_is_told(tmp_path, seeds, is_told):
    # all seeds end at 0; the interval ends at t * 0.1 / sqrt(n): 2.447 * 0.1 / 2.646 = 0.092 with
    # seven, 4.303 * 0.1 / 1.732 = 0.248 with three; random play has 0.184
    writer = FolderWriter(tmp_path, seeds=range(seeds))
    for seed in range(seeds):
        writer.finish(writer.spec(CONTROL, seed), {0: 4, 10: 5, 20: 6})
        writer.finish(writer.spec(TREATED, seed), {0: 4, 10: 2, 20: 0})
    text = page(finding_of(writer))
    assert ("- `kl_loss_coef=0.1` ends below random play" in text) is is_told


def test_a_confounded_sweep_has_its_stamp_and_its_numbers(tmp_path):
    writer = finished_sweep(tmp_path)
    write_json_atomic(
        writer.run.comparability,
        {"ok": False, "errors": [], "warnings": [], "allow_confounded": "on purpose"},
    )
    text = page(finding_of(writer))
    assert "**CONFOUNDED: more than the axis differs, so nothing follows about the axis" in text
    assert "`kl_loss_coef=0.1`: **no verdict (confounded)**; measured: −0.433" in text
    assert "--allow-confounded 'on purpose'" in text


def test_an_honest_folder_holds_and_is_the_same_again(published, writer, tmp_path):
    assert problems_of(published) == []
    again = tmp_path / "kl"
    write_finding(read_finding(published), again)
    names = sorted(path.name for path in published.iterdir())
    assert sorted(path.name for path in again.iterdir()) == names
    assert [name for name in names if (again / name).read_bytes() != (published / name).read_bytes()
            ] == []  # fmt: skip


def test_an_axis_that_moves_several_keys_reads_back_as_it_was(tmp_path):
    at = SWEEP.index("axis:")
    values = "none: {use_kl_loss: false, kl_loss_coef: 0.0}, tied: {use_kl_loss: true, "
    values = f"{{{values}kl_loss_coef: 0.1}}}}"
    axis = f"axis:\n  key: loss\n  values: {values}\n  control: none\n  why: one switch\n"
    writer = FolderWriter(tmp_path, f"{SWEEP[:at]}{axis}{SWEEP[SWEEP.index('seeds:') :]}")
    finding = finding_of(writer)
    write_finding(finding, tmp_path / "kl")
    assert problems_of(tmp_path / "kl") == []
    assert "with it 2 keys: `loss.kl_loss_coef`, `loss.use_kl_loss`" in page(finding)


def test_configs_come_back_as_they_were(published, writer):
    recorded = {one.spec.trial_id: one.spec for one in read_finding(published).recorded}
    assert recorded == {spec.trial_id: spec for spec in writer.specs}
    assert nested({"a.b": 1, "env.arguments.\"x.y\"": 2}) == {
        "a": {"b": 1}, "env": {"arguments": {"x.y": 2}},
    }  # fmt: skip


def without_trial(folder, *, names=("trials.csv", "trials.json")):
    """Remove the last trial of the condition, wherever it is named."""
    last = read_finding(folder).trials[-1].trial_id
    for name in names:
        if name == "trials.json":
            content = read_json(folder / name)
            content["trials"] = [one for one in content["trials"] if one["trial_id"] != last]
            write_json_atomic(folder / name, content)
        else:
            lines = (folder / name).read_text().splitlines(keepends=True)
            (folder / name).write_text("".join(line for line in lines if last not in line))


def better_gate(folder):
    """Give the condition's last gate of seed 0 one task more, with the interval that belongs."""
    lines = (folder / "gates.csv").read_text().splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if f",{TREATED},0,20," in line)
    three = next(line for line in lines if f",{TREATED},1,20," in line).split(",")
    cells = lines[at].split(",")
    cells[7:10] = three[7:10]
    lines[at] = ",".join(cells)
    (folder / "gates.csv").write_text("".join(lines))


def other_figure(folder):
    shutil.copy(folder / "figure.svg", folder / "comparison.svg")


def later_prediction(folder):
    content = read_json(folder / "trials.json")
    for one in content["trials"]:
        one["expected_delta"] = "" if one["is_control"] else "-0.4 success"
    write_json_atomic(folder / "trials.json", content)


def other_config(folder):
    content = read_json(folder / "trials.json")
    content["trials"][-1]["config"]["loss.kl_loss_coef"] = 0.2
    write_json_atomic(folder / "trials.json", content)


def other_commit(folder):
    for name in ("trials.csv", "trials.json", "results.tsv"):
        replace_in(name, "c0ffee", "decaf0")(folder)


DOCTORED = [  # (what was done, what is found)
    pytest.param(better_gate, "final: 0.2, its gates give 0.3", id="a gate"),
    pytest.param(
        replace_in("gates.csv", ",10,0,0.7,", ",10,0,0.75,"),
        "step 20: 0.75 is not a share of 10 tasks",
        id="a gate that cannot be",
    ),
    pytest.param(
        replace_in("summary.csv", ",below,", ",above,"),
        "final, t, verdict: above, recomputed below",
        id="a verdict in the table",
    ),
    pytest.param(
        replace_in("index.md", "below the control", "above the control"),
        "above the control",
        id="a verdict on the page",
    ),
    pytest.param(
        replace_in("index.md", "6 of 6 trials", "9 of 9 trials"),
        "index.md:",
        id="a count on the page",
    ),
    pytest.param(without_trial, "seed 2 of sweep.yaml is missing", id="a trial left out"),
    pytest.param(other_figure, "comparison.svg does not show these tables", id="another figure"),
    pytest.param(
        lambda folder: (folder / "figure.svg").unlink(), "figure.svg is missing", id="no figure"
    ),
    pytest.param(
        replace_in("trials.csv", "c0ffee", "decaf0"),
        "code_rev: decaf0, trials.json has c0ffee",
        id="a commit",
    ),
    pytest.param(later_prediction, "expected_delta: '', trials.json has '-0.4", id="a prediction"),
    pytest.param(other_config, "its config has the identity", id="a config"),
    pytest.param(
        replace_in("pairs.csv", ",10,2,0,4\n", ",10,2,3,4\n"),
        "5 of 10 tasks, trials.csv has 0.2",
        id="tasks of a pair",
    ),
    pytest.param(
        replace_in("results.tsv", "\t0.5\t", "\t0.9\t"),
        "core_metric: 0.9, trials.csv has 0.5",
        id="the lineage",
    ),
    pytest.param(
        replace_in("manifest.json", '"planned": 6', '"planned": 5'),
        "trials.planned: 5, trials.csv has 6",
        id="a count of the manifest",
    ),
    pytest.param(
        replace_in("trials.csv", ",ok\n", ",confounded\n"),
        "mark: 'confounded', the audit gives 'ok'",
        id="a mark",
    ),
    pytest.param(
        replace_in("sweep.yaml", "values: [0.0, 0.1]", "values: [0.0, 0.1, 0.2]"),
        "kl_loss_coef=0.2, seed 0 of sweep.yaml is missing",
        id="a condition that was dropped",
    ),
]


@pytest.mark.parametrize(("doctor", "found"), DOCTORED)
def test_a_doctored_folder_is_caught_with_its_file_and_number(folder, doctor, found):
    doctor(folder)
    assert problems_of(folder)
    # and where the digests were made to agree, too
    seal_again(folder / "manifest.json")
    assert [text for text in problems_of(folder) if found in text]


def by_another_matplotlib(folder):
    """Let the manifest say that another one drew the figures, and list them as they are."""
    content = read_json(folder / "manifest.json")
    write_json_atomic(folder / "manifest.json", {**content, "drawn_with": "3.0.0"})
    seal_again(folder / "manifest.json")


def move_a_point(folder):
    """Move the first point of the comparison by three points of print."""
    path = folder / "comparison.svg"
    svg = path.read_text()
    found = re.search(r'<g id="mark-0">.*?<use [^>]*x="([\d.]+)"', svg, re.DOTALL)
    at = found.start(1)
    path.write_text(f"{svg[:at]}{float(found[1]) + 3:.6f}{svg[at + len(found[1]) :]}")


@pytest.mark.parametrize(
    ("doctor", "found"),
    [
        pytest.param(replace_in("figure.svg", "patch_", "part_"), "", id="other names inside"),
        pytest.param(other_figure, "comparison.svg does not show these tables: it says", id="swap"),
        pytest.param(move_a_point, "tables: panel 1: shape ", id="a point"),
        pytest.param(
            replace_in("comparison.svg", "below the control", "above the control"),
            "not '-0.433 [-0.682, -0.185], below the control",
            id="a word",
        ),
        pytest.param(
            replace_in("figure.svg", "stroke: #e69f00", "stroke: #0072b2"),
            "has the colours ('#0072b2', 'none'), not ('#e69f00', 'none')",
            id="a colour",
        ),
        pytest.param(replace_in("figure.svg", "</svg>", ""), "it cannot be read", id="no XML"),
    ],
)
def test_a_figure_that_another_matplotlib_drew_must_show_the_same(folder, doctor, found):
    doctor(folder)
    by_another_matplotlib(folder)
    problems = problems_of(folder)
    assert any(found in text for text in problems) if found else problems == [], problems


def test_without_matplotlib_the_titles_of_figures_are_compared(folder, monkeypatch):
    monkeypatch.setattr("rltune.report.finding.verify.has_matplotlib", lambda: False)
    assert problems_of(folder) == []
    other_figure(folder)
    seal_again(folder / "manifest.json")
    (text,) = problems_of(folder)
    assert text.startswith("comparison.svg does not show these tables: it says ")


def test_a_changed_file_is_named_with_its_digest(folder):
    (folder / "sweep.yaml").write_text((folder / "sweep.yaml").read_text() + "# more\n")
    (text,) = problems_of(folder)
    assert text.startswith("sweep.yaml was changed (sha256 ")


def test_a_hand_picked_checkpoint_is_caught(folder):
    trial = next(row for row in read_finding(folder).trials if not row.is_control)
    replace_in("trials.csv", f",{trial.selected},10,", f",{trial.final},20,")(folder)
    found = problems_of(folder)
    assert any("best_step: 20, its gates give 10" in text for text in found)


def test_another_commit_in_every_record_has_other_files(folder):
    other_commit(folder)
    _, checks = verify(folder, sources_at=lambda commit: "t")
    found = [text for check in checks for text in check.problems]
    assert "trials.csv: source_sha256 s, but commit decaf0 has t" in found


def test_a_failed_trial_that_is_removed_is_missed_by_the_lineage(tmp_path):
    writer = FolderWriter(tmp_path)
    failed_sweep(writer)
    add_rows(writer)
    out = tmp_path / "kl"
    write_finding(finding_of(writer), out)
    assert problems_of(out) == []
    without_trial(out)
    text = "is missing; results.tsv says crash"
    assert any(text in found for found in problems_of(out))


def test_tables_that_cannot_be_read_are_named_and_not_judged(folder):
    (folder / "trials.csv").write_text("a,b\n1,2\n")
    finding, checks = verify(folder, sources_at=sources_at)
    assert finding is None
    assert "trials.csv: has the columns ['a', 'b']." in checks[-1].problems[0]


def test_what_is_no_finding_is_refused(tmp_path):
    with pytest.raises(StoreError, match="there is no such folder"):
        verify(tmp_path / "nowhere", sources_at=sources_at)
    with pytest.raises(StoreError, match=r"it has no manifest\.json of one"):
        verify(tmp_path, sources_at=sources_at)


def test_a_folder_of_something_else_is_not_written_into(writer, folder, tmp_path):
    finding = finding_of(writer)
    require_place(folder, finding)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(InputError, match="is a folder with other files in it"):
        require_place(tmp_path / "mine", finding)
    replace_in("manifest.json", '"sweep": "kl"', '"sweep": "other"')(folder)
    with pytest.raises(InputError, match="holds the finding of the sweep 'other'"):
        require_place(folder, finding)


def test_a_metric_that_no_trial_measured_is_refused(writer):
    with pytest.raises(InputError, match="no trial measured it") as raised:
        finding_of(writer, metrics=["budget/rollout"])
    assert "Did you mean 'budget/rollouts'?" in str(raised.value)


def test_a_note_cannot_end_its_section(published):
    with pytest.raises(InputError, match="'## Verdict' is a heading of level 1 or 2"):
        noted(read_finding(published), "fine\n\n## Verdict\n")


def test_ceilings_that_differ_name_their_conditions(published):
    finding = read_finding(published)
    trials = [row if row.is_control else replace(row, ceiling=0.5) for row in finding.trials]
    lines = levels(replace(finding, trials=trials))
    assert "- random play (floor): 0.184\n" in lines  # one for all
    sides = "0.950 with `kl_loss_coef=0.0`; 0.500 with `kl_loss_coef=0.1`"
    assert f"- perfect play (ceiling): {sides}" in lines
