import math

import pytest
from cases import each
from hypothesis import given
from hypothesis import strategies as st

from rltune.lineage.row import (
    COLUMNS,
    HEADER,
    LineageRow,
    decode_row,
    encode_row,
    escape,
    row_problems,
    unescape,
)
from rltune.types import RowStatus

FIELD_COLUMNS = (
    "exp_id timestamp specialist parent_exp baseline_exp domain hypothesis expected_delta status "
    "core_metric val_bpb delta_vs_best train_s total_s job_name snapshot_path notes"
)
OUR_COLUMNS = (
    "sweep axis_key axis_value condition seed trial_id config_hash commit metric_name metric_mode "
    "heldout_metric pool_metric best_step ig_mean wandb_id"
)


def test_the_columns_are_the_field_s_seventeen_then_ours():
    assert f"{FIELD_COLUMNS} {OUR_COLUMNS}".split() == list(COLUMNS)
    assert HEADER.count("\t") == 31


def test_the_statuses_are_the_field_s_ten_then_ours():
    field = "keep discard crash eval_budget_overrun train_budget_overrun size_blocked"
    field += " preflight_crash harness_abort disqualified baseline"
    assert " ".join(RowStatus) == f"{field} pruned preempted diverged"


def test_a_record_by_hand():
    row = LineageRow(
        exp_id="t1",
        status=RowStatus.KEEP,
        hypothesis="a\tb\nc\\d\re",
        core_metric=0.5,
        seed=0,
        notes='"q"',
    )
    cells = ["t1", "", "", "", "", "", r"a\tb\nc\\d\re", "", "keep", "0.5", *[""] * 6, '"q"']
    cells += ["", "", "", "", "0", *[""] * 10]
    assert encode_row(row) == "\t".join(cells)


ids = st.text(st.characters(exclude_categories=["C", "Z"], exclude_characters="\\"), min_size=1)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
floats = st.none() | st.floats(allow_nan=False, allow_infinity=False)
ints = st.none() | st.integers()
FLOATS = "core_metric val_bpb delta_vs_best train_s total_s heldout_metric pool_metric ig_mean"
NUMBERS = dict.fromkeys(FLOATS.split(), floats) | {"seed": ints, "best_step": ints}
OTHERS = {"exp_id": ids, "status": st.sampled_from(RowStatus)} | NUMBERS
rows = st.builds(LineageRow, **{name: OTHERS.get(name, texts) for name in COLUMNS})


@given(rows)
def test_every_row_round_trips_on_one_physical_line(row):
    line = encode_row(row)
    assert line.encode().count(b"\n") == line.count("\r") == 0
    assert line.count("\t") == 31
    assert decode_row(line) == row
    assert row_problems(row) == []


@given(texts)
def test_escaping_is_inverted(text):
    assert unescape(escape(text)) == text


def test_a_float_reads_back_to_the_last_bit():
    value = math.nextafter(0.1, 1)
    row = LineageRow(exp_id="t", status=RowStatus.KEEP, core_metric=value, train_s=3)
    assert decode_row(encode_row(row)).core_metric == value
    assert encode_row(row).split("\t")[12] == "3.0"


@pytest.mark.parametrize("text", ["\0", "a\0b", "\ud800"])
def test_what_no_text_file_carries_is_refused(text):
    with pytest.raises(ValueError, match=r"contains a NUL|is not valid Unicode"):
        escape(text)


@pytest.mark.parametrize("cell", ["\\", "a\\x", "\\ ", "\\\\\\"])
def test_an_escape_that_we_never_write_is_refused(cell):
    with pytest.raises(ValueError, match="is not an escape"):
        unescape(cell)


BAD_VALUES = [
    ({"core_metric": math.nan}, "core_metric: nan is not a finite number; None means none"),
    ({"train_s": math.inf}, "train_s: inf is not a finite number; None means none"),
    ({"core_metric": "0.5"}, "core_metric: '0.5' is not a finite number; None means none"),
    ({"core_metric": True}, "core_metric: True is not a finite number; None means none"),
    ({"seed": 1.0}, "seed: 1.0 is not an integer; None means none"),
    ({"best_step": False}, "best_step: False is not an integer; None means none"),
    ({"notes": None}, "notes: None is not text"),
    ({"notes": "\0"}, "notes: '\\x00' contains a NUL"),
    ({"status": "bogus"}, "status: 'bogus' is not a status. Choose one of keep, discard, crash"),
    ({"status": "keep"}, "status: 'keep' is not a status. Choose one of keep, discard, crash"),
    ({"exp_id": ""}, "exp_id: '' must be non-empty"),
    ({"exp_id": " x"}, "exp_id: ' x' must be non-empty"),
    ({"exp_id": "a\\b"}, "exp_id: 'a\\\\b' must be non-empty"),
]


@each(("changes", "message"), BAD_VALUES)
def test_a_bad_value_is_named(changes, message):
    (problem,) = row_problems(LineageRow(**{"exp_id": "t", "status": RowStatus.KEEP} | changes))
    assert problem.startswith(message)


GOOD = encode_row(LineageRow(exp_id="t", status=RowStatus.KEEP, core_metric=0.5, seed=1))
BAD_LINES = [
    (GOOD + "\t", "33 columns instead of 32"),
    ("", "1 columns instead of 32"),
    (GOOD.replace("keep", "KEEP"), "status: 'KEEP' is not a status. Choose one of"),
    (GOOD.replace("keep", ""), "status: '' is not a status. Choose one of"),
    (GOOD.replace("0.5", "best"), "core_metric: 'best' is not a number"),
    (GOOD.replace("0.5", "nan"), "core_metric: nan is not a finite number"),
    (GOOD.replace("0.5", "1e999"), "core_metric: inf is not a finite number"),
    (GOOD.replace("\t1\t", "\t1.5\t"), "seed: '1.5' is not a number"),
    (GOOD.replace("t\t\t", "t\t\\q\t", 1), r"timestamp: '\\q' is not an escape"),
]


@each(("line", "message"), BAD_LINES)
def test_a_bad_line_is_named(line, message):
    with pytest.raises(ValueError) as refusal:  # noqa: PT011 - the message is compared below
        decode_row(line)
    assert str(refusal.value).startswith(message)
