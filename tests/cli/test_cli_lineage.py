import json

import pytest
from run_folders import CONTROL, TREATED, finished_sweep

from rltune.lineage.fieldkit import FIELDKIT_COLUMNS
from rltune.lineage.row import LineageRow
from rltune.lineage.table import LineageStore
from rltune.types import RowStatus

METRIC = {"metric_name": "heldout/success_rate", "metric_mode": "max"}
COMMANDS = (
    *("show", "best", "chain", "recent", "children", "calibration"),
    *("render", "import", "export", "repair"),
)


def row(exp_id, status, metric=None, **changes):
    return LineageRow(exp_id=exp_id, status=status, core_metric=metric, **METRIC | changes)


@pytest.fixture
def table(tmp_path):
    """A small story, with ids that begin alike."""
    store = LineageStore(tmp_path / "nights.tsv", *METRIC.values())
    store.append_many(
        [
            row("kl-0", RowStatus.BASELINE, 0.5),
            row("kl-1", RowStatus.CRASH, parent_exp="kl-0", notes="out of memory\nat step 7"),
            row("kl-2", RowStatus.KEEP, 0.6, parent_exp="kl-1", delta_vs_best=0.1,
                baseline_exp="kl-0", expected_delta="+0.05"),
            row("kl-3", RowStatus.DISCARD, 0.4, parent_exp="kl-2", delta_vs_best=-0.2,
                baseline_exp="kl-2", expected_delta="+0.05"),
            row("em-0", RowStatus.DISQUALIFIED, 0.99),
        ]
    )  # fmt: skip
    return store


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example(rltune, name):
    result = rltune("lineage", name, "--help")
    assert result.code == 0
    assert f"\n  Example:\n    rltune lineage {name}" in result.out


def test_show_puts_the_prediction_beside_what_came(rltune, table):
    result = rltune("lineage", "show", "nights.tsv")
    assert result.out.splitlines()[0].split() == (
        ["exp_id", "status", "metric", "expected", "vs", "best", "step"]
    )
    assert "Best: kl-2 with heldout/success_rate 0.600." in result.out
    assert "Predictions: right sign: 0 of 1 predictions; mean absolute error: 0.250" in (
        " ".join(result.out.split())
    )
    assert "out of memory ⏎ at step 7" in " ".join(result.out.split())
    data = json.loads(rltune("lineage", "show", "nights.tsv", "--json").out)
    assert (data["metric"], data["mode"], len(data["rows"])) == (*METRIC.values(), 5)
    assert data["calibration"]["right_signs"] == 0


def test_best_is_never_a_disqualified_row(rltune, table):
    assert rltune("lineage", "best", "nights.tsv").out == (
        "Best: kl-2 with heldout/success_rate 0.600.\n"
    )
    data = json.loads(rltune("lineage", "best", "nights.tsv", "--json").out)
    assert (data["best"]["exp_id"], data["ties"], data["mode"]) == ("kl-2", [], "max")


def test_chain_goes_through_kept_rows_and_names_the_others(rltune, table):
    result = rltune("lineage", "chain", "nights.tsv")
    assert [line.split()[0] for line in result.out.splitlines()] == (
        ["exp_id", "kl-0", "kl-2", "Left"]
    )
    assert result.out.endswith("Left out because not kept: kl-1 (crash).\n")
    data = json.loads(rltune("lineage", "chain", "nights.tsv", "--of", "kl-3", "--json").out)
    assert [one["exp_id"] for one in data["rows"]] == ["kl-0", "kl-2", "kl-3"]
    assert data["missing"] == ""


def test_recent_and_children(rltune, table):
    recent = json.loads(rltune("lineage", "recent", "nights.tsv", "-n", "2", "--json").out)
    assert [one["exp_id"] for one in recent] == ["em-0", "kl-3"]
    assert json.loads(rltune("lineage", "recent", "nights.tsv", "-n", "0", "--json").out) == []
    out = rltune("lineage", "children", "nights.tsv").out
    assert [line.split()[0] for line in out.splitlines()] == ["exp_id", "kl-3"]
    assert rltune("lineage", "children", "nights.tsv", "--of", "kl-3").out == (
        "No row departs from it.\n"
    )


def test_ids_that_name_no_row_or_several_are_refused(rltune, table):
    result = rltune("lineage", "chain", "nights.tsv", "--of", "kl")
    assert (result.code, result.out) == (2, "")
    assert result.err == (
        "error: exp_id: 'kl' matches 4 ids: kl-0, kl-1, kl-2 and 1 more. Give a longer prefix.\n"
    )
    missing = rltune("lineage", "children", "nights.tsv", "--of", "kl_2")
    assert missing.err == "error: exp_id: 'kl_2' is not in the table. Did you mean 'kl-2'?\n"


def test_there_is_no_best_yet(rltune, tmp_path):
    LineageStore(tmp_path / "t.tsv", *METRIC.values()).append(row("a", RowStatus.CRASH))
    assert rltune("lineage", "best", "t.tsv").out == "No kept row has a metric yet.\n"
    result = rltune("lineage", "chain", "t.tsv")
    assert result.code == 2
    assert "so there is no best. Name a row with --of EXP_ID." in result.err


def test_calibration_says_how_to_predict_when_nobody_did(rltune, table, tmp_path):
    out = rltune("lineage", "calibration", "nights.tsv").out
    lines = [line.split() for line in out.splitlines()]
    assert lines[1] == ["kl-2", "+0.05", "+0.050", "-", "-"]  # the parent crashed
    assert lines[2] == ["kl-3", "+0.05", "+0.050", "-0.200", "wrong"]
    LineageStore(tmp_path / "t.tsv", *METRIC.values()).append(row("a", RowStatus.KEEP))
    assert "Nothing was predicted" in rltune("lineage", "calibration", "t.tsv").out


def test_a_missing_table_is_refused(rltune):
    result = rltune("lineage", "best", "none.tsv")
    assert (result.code, result.err) == (2, "error: none.tsv: there is no such file.\n")


def test_render_writes_what_it_prints(rltune, table, tmp_path):
    shown = rltune("lineage", "render", "nights.tsv", "--print").out
    assert not (tmp_path / "KNOWLEDGE.md").exists()
    result = rltune("lineage", "render", "nights.tsv", "--out", "cards")
    assert result.out.splitlines()[:2] == ["wrote cards/LEADERBOARD.md", "wrote cards/KNOWLEDGE.md"]
    (snapshot,) = (tmp_path / "cards" / "lineage_snapshots").iterdir()
    assert snapshot.read_text() == shown
    assert "**← BEST**" in (tmp_path / "cards" / "KNOWLEDGE.md").read_text()


def test_a_run_folder_gets_its_lineage_report_inside(rltune, tmp_path):
    writer = finished_sweep(tmp_path)
    store = LineageStore(writer.run.results, *METRIC.values())
    store.append(row(writer.spec(CONTROL, 0).trial_id, RowStatus.BASELINE, 0.5))
    store.append(row(writer.spec(TREATED, 0).trial_id, RowStatus.KEEP, 0.6))
    assert rltune("lineage", "render").code == 0
    assert (writer.run.path / "KNOWLEDGE.md").is_file()


def test_export_to_fieldkit_says_what_that_cannot_hold(rltune, table, tmp_path):
    result = rltune("lineage", "export", "nights.tsv")
    assert result.out.startswith("\t".join(FIELDKIT_COLUMNS) + "\n")
    assert result.err == (
        "fieldkit does not store the direction: open it with lower_is_better=False.\n"
    )
    written = rltune("lineage", "export", "nights.tsv", "--out", "new/fk.tsv")
    assert written.out == "wrote new/fk.tsv: 5 rows\n"
    assert (tmp_path / "new" / "fk.tsv").read_text() == result.out
    refused = rltune("lineage", "export", "nights.tsv", "--out", "nights.tsv")
    assert (refused.code, len(table.read().rows)) == (2, 5)
    back = ("--into", "newer/b.tsv", "--metric", "heldout/success_rate", "--mode", "max")
    assert rltune("lineage", "import", "new/fk.tsv", "--format", "fieldkit", *back).out == (
        "newer/b.tsv: 5 rows imported, 0 records skipped\n"
    )
    assert (
        rltune("lineage", "best", "newer/b.tsv").out == rltune("lineage", "best", "nights.tsv").out
    )


def test_import_needs_the_direction_and_a_dry_run_writes_nothing(rltune, table, tmp_path):
    header, good = "\t".join(FIELDKIT_COLUMNS), "\t".join(["new", *[""] * 7, "keep", *[""] * 8])
    (tmp_path / "fk.tsv").write_text(f"{header}\n{good}\nbad\n")
    command = ("lineage", "import", "fk.tsv", "--format", "fieldkit")
    refused = rltune(*command, "--into", "x.tsv")
    assert refused.code == 2
    assert "Give --metric NAME and --mode max or min." in refused.err
    before = table.path.read_bytes()
    dry = rltune(*command, "--into", "nights.tsv", "--dry-run")
    assert (dry.code, dry.out) == (
        1, "nights.tsv: 1 rows would be imported, 1 records skipped\n",
    )  # fmt: skip
    assert dry.err == "warning: fk.tsv:3: 1 columns instead of 17. The record is skipped.\n"
    assert table.path.read_bytes() == before
    assert rltune(*command, "--into", "nights.tsv").code == 1
    assert len(table.read().rows) == 6
    other = rltune(*command, "--into", "nights.tsv", "--metric", "em", "--mode", "min")
    assert other.code == 2
    assert "this table was created with" in other.err


def test_import_of_autoresearch_knows_its_metric(rltune, tmp_path):
    (tmp_path / "results.tsv").write_text(
        "commit\tval_bpb\tmemory_gb\tstatus\tdescription\n"
        "aaaaaaa\t0.997900\t44.0\tkeep\tbaseline\n"
        "bbbbbbb\t0.000000\t0.0\tcrash\tdouble width\n"
    )
    command = ("lineage", "import", "results.tsv", "--format", "autoresearch", "--into", "n.tsv")
    assert rltune(*command).out == "n.tsv: 2 rows imported, 0 records skipped\n"
    assert rltune("lineage", "best", "n.tsv").out == "Best: aaaaaaa with val_bpb 0.998.\n"
    assert rltune(*command).code == 1  # they are there already


def test_import_of_its_kin_asks_which_way_is_better(rltune, tmp_path):
    (tmp_path / "results.tsv").write_text(
        "commit\tval_acc\tstatus\tdescription\naaaaaaa\t0.7\tkeep\tbaseline\n"
    )
    command = ("lineage", "import", "results.tsv", "--format", "autoresearch", "--into", "n.tsv")
    refused = rltune(*command)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.endswith("Give --mode max or --mode min.\n")
    wrong = rltune(*command, "--mode", "up")
    assert wrong.err == "error: --mode: 'up' is not a direction. Choose max or min.\n"
    assert rltune(*command, "--mode", "max").code == 0
    assert rltune("lineage", "best", "n.tsv").out == "Best: aaaaaaa with val_acc 0.700.\n"


@pytest.mark.parametrize("dialect", ["autoresearch", "fieldkit"])
def test_import_of_what_is_no_table_names_it_on_one_line(rltune, tmp_path, dialect):
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "binary").write_bytes(b"\x80\x0b" * 5000)
    given = ("--format", dialect, "--into", "x.tsv", "--metric", "m", "--mode", "max")
    said = {
        name: rltune("lineage", "import", name, *given).err.splitlines()
        for name in ("folder", "empty", "binary")
    }
    action = "Give the table of another tool."
    assert said["folder"] == [f"error: folder: is a folder. {action}"]
    assert said["empty"] == [f"error: empty: is empty. {action}"]
    (line,) = said["binary"]
    assert "its columns are" in line
    assert len(line) < 2000


def test_repair_says_first_and_mends_then(rltune, table):
    with table.path.open("a") as file:
        file.write("foreign\nhalf")
    before = table.path.read_bytes()
    dry = rltune("lineage", "repair", "nights.tsv")
    assert dry.code == 1
    assert dry.out == (
        "nights.tsv:7: 1 columns instead of 32\n"
        "nights.tsv:8: a torn last line of 4 bytes; its writer was killed\n"
        "5 rows stay, 2 lines would move to nights.tsv.torn\n"
        "Nothing was changed. Add --write to apply the repair.\n"
    )
    assert table.path.read_bytes() == before
    data = json.loads(rltune("lineage", "repair", "nights.tsv", "--json").out)
    assert ([one["line"] for one in data["bad_lines"]], data["written"]) == ([7, 8], False)
    assert rltune("lineage", "repair", "nights.tsv", "--write").code == 0
    assert "foreign" in table.path.with_name("nights.tsv.torn").read_text()
    clean = rltune("lineage", "repair", "nights.tsv")
    assert (clean.code, clean.out) == (0, "nights.tsv: 5 rows, nothing to repair\n")


def test_nothing_in_a_table_drives_the_terminal(rltune, tmp_path):
    evil = "a\x1b[31mb"
    store = LineageStore(tmp_path / "evil.tsv", *METRIC.values())
    store.append_many(
        [
            row(evil, RowStatus.CRASH),
            row("c", RowStatus.KEEP, 0.5, parent_exp=evil),
            row(f"{evil}2", RowStatus.KEEP, 0.5, parent_exp="c", expected_delta="+1"),
        ]
    )
    (tmp_path / "foreign.tsv").write_text(f"commit\t{evil}\n")
    foreign = ("import", "foreign.tsv", "--format", "autoresearch", "--into", "x.tsv")
    asked = [(name, "evil.tsv") for name in ("show", "best", "chain", "calibration")]
    for arguments in (*asked, foreign):
        told = rltune("lineage", *arguments)
        assert "\x1b" not in told.out + told.err
        assert "U+001B" in told.out + told.err, arguments
