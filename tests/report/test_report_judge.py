"""What a person is told of a language-model judge: what it needs, and how much it answered."""

import pytest
from goldens import drawn
from run_folders import SWEEP, FolderWriter, write_sweep

from rltune.analysis.audit import audit_folder
from rltune.analysis.status import read_state
from rltune.analysis.summary import close_sweep
from rltune.report.plan import make_plan, plan_view
from rltune.report.render_run import closing_view
from rltune.report.render_status import status_view
from rltune.spec.expand import expand
from rltune.spec.load import load_sweep
from rltune.store.run_folder import read_folder, read_records

ASKING = SWEEP.replace(
    "attribution.kind: none", "attribution.kind: adca\n  attribution.judge: llm"
).replace("hold:\n", "hold:\n  advantage.kind: grpo\n")


def test_the_plan_says_where_judging_ends(tmp_path, monkeypatch):
    """2 groups of 4 are 8 a step, 160 in 20 steps; 100 calls last for 12 steps."""
    path = write_sweep(tmp_path, ASKING)
    for budget, said in (
        ("160", "up to 160 calls a trial, budget 160 calls and 2,000,000 tokens\n"),
        ("100", "tokens: WARNING, judging ends at step 13 of 20 (max_calls)\n"),
    ):
        loaded = load_sweep(path, overrides=[f"attribution.llm.max_calls={budget}"])
        text = drawn(plan_view(make_plan(loaded, expand(loaded), None)), 200)
        (line,) = [line for line in text.splitlines(keepends=True) if "judge calls" in line]
        assert line.split()[:3] == ["judge", "calls", "960"]  # of 6 trials
        assert line.endswith(said)


@pytest.mark.parametrize("answered", [2.0, 0.0])
def test_status_closing_table_and_audit_say_how_much_was_judged(tmp_path, answered):
    writer = FolderWriter(tmp_path, ASKING, seeds=[0])
    for spec, got in zip(writer.specs, (2.0, answered), strict=True):
        counts = {"adca/asked_count": 2.0, "adca/answered_count": got}
        writer.train(spec, {0: 1, 10: 2}, steps=10, **counts)
    folder = read_folder(writer.run)
    read = read_records(folder)
    audit = audit_folder(folder, read)
    # 11 lines of metrics, two episodes each.
    said = "Episodes judged, of those asked about: kl_loss_coef=0.0 100.0% of 22, "
    said += f"kl_loss_coef=0.1 {answered / 2:.1%} of 22"
    closing = close_sweep(folder, read.records, audit)
    assert said in drawn(status_view(read_state(folder)), 200)
    assert said in drawn(closing_view(closing, width=200), 200)
    found = [one for one in audit.report.warnings if one.code == "A3.judged"]
    assert [said in one.message for one in found] == ([] if answered else [True])
    named = "Trials judged below 95%: kl_loss_coef=0.1, seed 0: 0 of 22."
    assert (named in drawn(status_view(read_state(folder)), 200)) is not bool(answered)
    assert [named in one.message for one in found] == ([] if answered else [True])
