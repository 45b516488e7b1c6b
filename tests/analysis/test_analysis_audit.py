from dataclasses import replace

import pytest
from goldens import assert_golden, drawn
from run_folders import CONTROL, SWEEP, TREATED, FolderWriter, finished_sweep

from rltune.analysis.audit import AuditVerdict, audit_folder
from rltune.report.render_run import audit_view
from rltune.store.digest import metrics_digest
from rltune.store.files import read_json, write_json_atomic
from rltune.store.jsonl import read_metrics
from rltune.store.lock import take_driver_lock
from rltune.store.run_folder import read_folder, read_records


def audit_of(writer):
    folder = read_folder(writer.run)
    return audit_folder(folder, read_records(folder))


def test_a_clean_sweep_passes_and_is_written(tmp_path):
    writer = finished_sweep(tmp_path)
    audit = audit_of(writer)
    assert audit.ok
    assert audit.report.warnings == ()
    written = read_json(writer.run.audit)
    assert (written["ok"], written["trials"], written["finished"]) == (True, 6, 6)


def test_another_commit_fails_and_names_the_trial(tmp_path):
    writer = finished_sweep(tmp_path)
    spec = writer.spec(TREATED, 1)
    provenance = writer.run.trial(spec.trial_id).provenance
    write_json_atomic(provenance, {**read_json(provenance), "commit": "beef"})
    audit = audit_of(writer)
    assert not audit.ok
    assert [item.rule for item in audit.report.errors] == ["A1"]
    assert spec.trial_id in audit.report.errors[0].message


def test_nothing_started_proves_nothing(tmp_path):
    audit = audit_of(FolderWriter(tmp_path))
    assert not audit.ok
    assert audit.verdict is AuditVerdict.INCOMPLETE
    assert "no trial has started" in drawn(audit_view(audit), 80)


@pytest.mark.parametrize(
    ("labels", "verdict"),
    [
        ([CONTROL], AuditVerdict.INCOMPLETE),
        ([TREATED], AuditVerdict.INCOMPLETE),
        ([CONTROL, TREATED], AuditVerdict.PASSED),
    ],
)
def test_passing_takes_the_control_and_another_condition(tmp_path, labels, verdict):
    writer = FolderWriter(tmp_path)
    for label in labels:
        for seed in (0, 1):
            writer.finish(writer.spec(label, seed), {0: 4, 10: 5, 20: 6})
    audit = audit_of(writer)
    assert audit.verdict is verdict
    assert audit.report.errors == ()
    said = drawn(audit_view(audit), 200)
    assert ("Audit passed" in said) is (verdict is AuditVerdict.PASSED)
    assert ("Audit incomplete (2 of 6 trials finished)" in said) is not (
        verdict is AuditVerdict.PASSED
    )
    assert read_json(writer.run.audit)["verdict"] == verdict.value


def test_two_conditions_without_the_control_compare_nothing(tmp_path):
    writer = FolderWriter(tmp_path, SWEEP.replace("[0.0, 0.1]", "[0.0, 0.1, 0.2]"))
    for spec in writer.specs:
        if not spec.is_control:
            writer.finish(spec, {0: 4, 10: 5, 20: 6})
    assert audit_of(writer).verdict is AuditVerdict.INCOMPLETE


def test_a_confounded_sweep_never_passes(tmp_path):
    writer = finished_sweep(tmp_path)
    proof = {"ok": False, "errors": [], "allow_confounded": "to see it"}
    write_json_atomic(writer.run.comparability, proof)
    audit = audit_of(writer)
    assert (audit.ok, audit.verdict) == (False, AuditVerdict.CONFOUNDED)
    said = drawn(audit_view(audit), 200)
    assert "CONFOUNDED (6 of 6 trials finished), nothing follows about the axis." in said
    assert "Run anyway: to see it" in said
    assert "passed" not in said
    written = read_json(writer.run.audit)
    assert (written["ok"], written["confounded"]) == (False, "to see it")


def test_a_trial_without_a_marker_is_pending_only_while_a_driver_lives(tmp_path):
    writer = finished_sweep(tmp_path)
    writer.run.trial(writer.spec(TREATED, 2).trial_id).done.unlink()
    assert audit_of(writer).verdict is AuditVerdict.FAILED
    with take_driver_lock(writer.run.lock, argv=["rltune"]):
        audit = audit_of(writer)
    assert [item.rule for item in audit.report.warnings] == ["A4"]
    assert audit.verdict is AuditVerdict.PASSED


def test_an_attempt_with_another_commit_fails(tmp_path):
    writer = finished_sweep(tmp_path)
    earlier = [{"attempt": 1, "commit": "beef", "host": "x"}]
    writer.start(writer.spec(CONTROL, 0), attempt=2, earlier=earlier)
    (found,) = audit_of(writer).report.errors
    assert "commit was 'beef' in attempt 1 and 'c0ffee' in the last one." in found.message


def test_a_torn_line_is_reported(tmp_path):
    writer = finished_sweep(tmp_path)
    path = writer.run.trial(writer.spec(CONTROL, 0).trial_id).metrics
    with path.open("a", encoding="utf-8") as file:
        file.write('{"step": 21, "ti')
    audit = audit_of(writer)
    assert [str(problem) for problem in audit.problems] == [
        f"{path}:22: a torn last line (its writer was killed): "
        """b'{"step": 21, "ti'. The line is skipped."""
    ]


@pytest.mark.parametrize("width", [80, 120])
def test_audit_text(tmp_path, width):
    assert_golden(f"audit_{width}", drawn(audit_view(audit_of(finished_sweep(tmp_path))), width))


def test_failed_audit_text(tmp_path):
    writer = FolderWriter(tmp_path)
    writer.finish(writer.spec(CONTROL, 0), {0: 4, 10: 5, 20: 6})
    writer.finish(writer.spec(TREATED, 0), {0: 4, 20: 6})
    text = drawn(audit_view(audit_of(writer)), 80)
    assert "Audit FAILED (2 of 6 trials finished): these trials do not prove a comparison." in text
    assert "was evaluated at steps [0, 20], not [0, 10, 20]." in " ".join(text.split())


def test_metrics_changed_after_the_end_are_named(tmp_path):
    writer = finished_sweep(tmp_path)
    for spec in writer.specs:
        trial = writer.run.trial(spec.trial_id)
        trial.write_done(replace(trial.read_done(), metrics_sha256=metrics_digest(trial.metrics)))
    assert audit_of(writer).ok
    trial = writer.run.trial(writer.spec(TREATED, 1).trial_id)
    text = trial.metrics.read_text()
    trial.metrics.write_text(text.replace('"timing_s/collect": 1.25', '"timing_s/collect": 2.5'))
    assert audit_of(writer).ok  # clocks do not count
    trial.metrics.write_text(text.replace('"budget/rollouts": 40.0', '"budget/rollouts": 40.5'))
    errors = [item for item in audit_of(writer).report.errors if "metrics.jsonl" in item.message]
    assert [item.rule for item in errors] == ["A5"]
    assert trial.trial_id in errors[0].message


def test_a_trial_that_ends_while_it_is_read_has_no_result_yet(tmp_path, monkeypatch):
    writer = finished_sweep(tmp_path)
    trial = writer.run.trial(writer.spec(TREATED, 1).trial_id)
    content = trial.done.read_bytes()
    trial.done.unlink()

    def and_end(path):
        rows = read_metrics(path)
        if path == trial.metrics:
            trial.done.write_bytes(content)
        return rows

    monkeypatch.setattr("rltune.store.run_folder.read_metrics", and_end)
    records = {one.spec.trial_id: one for one in read_records(read_folder(writer.run)).records}
    assert records[trial.trial_id].result is None
    assert trial.done.exists()
