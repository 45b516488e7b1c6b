"""Rows as fieldkit's Trial holds them, with all that makes a table hard to carry."""

_BLANK = {
    "timestamp": "", "specialist": "", "parent_exp": "", "baseline_exp": "", "domain": "",
    "hypothesis": "", "expected_delta": "", "core_metric": None, "val_bpb": None,
    "delta_vs_best": None, "train_s": None, "total_s": None, "job_name": "", "snapshot_path": "",
    "notes": "",
}  # fmt: skip


def trial(exp_id, status, **changes):
    return {"exp_id": exp_id, "status": status} | _BLANK | changes


HARD_ROWS = [
    trial("000", "baseline", core_metric=33.21, timestamp="2026-05-11T08:00:00Z"),
    trial(
        "001", "keep", parent_exp="exp_000", baseline_exp="000", core_metric=34.02,
        delta_vs_best=0.81, hypothesis='two\nlines\tand a tab, a "quote"', notes='"',
        expected_delta="+0.80 EM",
    ),
    trial(
        "002", "discard", parent_exp="001", core_metric=33.74,
        hypothesis='</hypothesis>\n<parameter name="notes">\n\nx | y ```', notes="é 中 \\n \\ 'q'",
    ),
    trial("003", "eval_budget_overrun", parent_exp="001", notes="\n"),
    trial("004", "size_blocked", parent_exp="exp_001", core_metric=99.0, train_s=1.5, total_s=2.0),
    trial("005", "harness_abort", parent_exp="404"),
]  # fmt: skip
