"""The table over all findings, and what they claim together."""

from run_folders import finished_sweep
from test_report_finding import CODE, drawn_once

from rltune.analysis.ends import NO_VERDICT
from rltune.analysis.stats import Estimate
from rltune.analysis.verdict_words import SAME, Verdict
from rltune.maths.sequential import Decision, Look
from rltune.report.finding.collect import collect
from rltune.report.finding.files import write_finding
from rltune.report.finding.index import all_together, findings_table
from rltune.store.run_folder import read_folder

assert drawn_once  # used by all tests here, too


def verdict(word, p, *, looks=()):
    estimate = Estimate(-0.1, 5, None)
    return Verdict("k=1", "the control", word, 5, 5, 20, 20, estimate, p, p, 1, None, looks=looks)


def test_claims_of_many_sweeps_are_adjusted_together():
    verdicts = [
        verdict("below", 0.01),  # 4 x 0.01 = 0.04
        verdict("above", 0.02),  # 3 x 0.02 = 0.06
        verdict(SAME, 0.06),
        verdict(SAME, 0.5),
        verdict(f"{NO_VERDICT} (2 seeds)", 0.001),
        verdict("above", 0.001, looks=(Look(5, -0.1, None, 0.001, 0.02, Decision.DIFFERENT),)),
    ]
    said = all_together(verdicts)
    assert said.startswith("Of 4 comparisons with a control, 2 claim a difference, each adjusted")
    assert "Adjusted over all 4 at once (Holm), 1 would." in said


def test_the_table_ends_with_what_all_claim(tmp_path):
    run = read_folder(finished_sweep(tmp_path / "run").run)
    for name in ("first", "second"):
        write_finding(collect(run, CODE, name=name), tmp_path / "findings" / name)
    # p = 0.017 twice: 2 x 0.017 = 0.035
    text = findings_table(tmp_path / "findings")
    assert text.count("| below: `0.1` | 3 | passed |") == 2
    assert "Of 2 comparisons with a control, 2 claim a difference" in text
    assert "Adjusted over all 2 at once (Holm), 2 would." in text
