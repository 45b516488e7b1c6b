import json
import re
from pathlib import Path

import pytest
from goldens import assert_golden, masked
from run_folders import (
    CONTROL,
    SWEEP,
    TREATED,
    FolderWriter,
    finished_sweep,
    write_sweep,
)

from rltune.lineage.record import RowContext, row_for
from rltune.lineage.table import LineageStore
from rltune.runner.environment import make_ray_folder
from rltune.spec.expand import expand
from rltune.spec.load import load_sweep
from rltune.spec.plan import plan_json
from rltune.store.failure import TrialFailure
from rltune.store.files import write_json_atomic
from rltune.store.lock import take_driver_lock
from rltune.types import RowStatus

ROOT = Path(__file__).parents[2]
CONFOUNDED = SWEEP.replace("  loss.entropy_coeff: 0.0\n", "")
CRASH = TrialFailure(RowStatus.CRASH, "RuntimeError: out of memory (rltune/x.py:3)", "", 7, 1)


def test_check_prints_the_proof(rltune, tmp_path):
    write_sweep(tmp_path)
    result = rltune("check", "sweeps/kl.yaml")
    assert result.code == 0
    assert_golden("check_80", result.out)


def test_check_refuses_with_code_2_and_says_why_on_stdout(rltune, tmp_path):
    write_sweep(tmp_path, CONFOUNDED)
    result = rltune("check", "sweeps/kl.yaml")
    assert result.code == 2
    assert "NOT COMPARABLE: 1 error, see above." in result.out


def test_check_of_two_files_names_what_their_protocol_forbids(rltune, tmp_path):
    path = write_sweep(tmp_path)
    path.with_name("b.yaml").write_text(SWEEP.replace("budget.steps: 20", "budget.steps: 21"))
    result = rltune("check", "sweeps/kl.yaml", "sweeps/b.yaml")
    assert result.code == 2
    assert "S9 error sweeps/kl.yaml and sweeps/b.yaml follow protocol figure3" in result.out


def test_check_reports_the_problems_of_all_files(rltune, tmp_path):
    write_sweep(tmp_path)
    result = rltune("check", "a.yaml", "sweeps/kl.yaml", "b.yaml")
    assert result.err.splitlines() == [
        "error: a.yaml: There is no such sweep file.",
        "error: b.yaml: There is no such sweep file.",
    ]


def test_check_json(rltune, tmp_path):
    write_sweep(tmp_path)
    data = json.loads(rltune("check", "sweeps/kl.yaml", "--json").out)
    assert data["ok"] is True
    assert data["sweeps"][0]["axis"] == "loss.kl_loss_coef"


def test_check_schema_describes_sweep_files(rltune):
    schema = json.loads(rltune("check", "--schema").out)
    assert {"name", "axis", "seeds", "hold"} <= set(schema["properties"])


def test_plan_json_is_what_the_sweep_writes(rltune, tmp_path):
    loaded = load_sweep(write_sweep(tmp_path))
    data = json.loads(rltune("plan", "sweeps/kl.yaml", "--json").out)
    written = json.loads(json.dumps(plan_json(loaded, expand(loaded), tasks=None)))
    cost = data.pop("cost")
    assert data == {**written, "file": "sweeps/kl.yaml"}
    assert [*cost["trials"]] == [trial["trial_id"] for trial in data["trials"]]
    first = next(iter(cost["trials"].values()))
    assert (first["steps"], first["wall_s"], first["gpus"]) == (20, None, [])
    assert first["memory"]["peak"] > first["memory"]["program"] > 0


def test_plan_text(rltune, tmp_path):
    write_sweep(tmp_path)
    result = rltune("plan", "sweeps/kl.yaml", "--seeds", "4")
    assert result.code == 0
    assert "2 trials, profile laptop" in result.out
    assert "not measured yet" in result.out


def test_status_finds_the_newest_run(rltune, tmp_path):
    writer = finished_sweep(tmp_path)
    first, second = rltune("status").out.splitlines()[:2]
    assert first == "kl: 6 done"
    assert re.fullmatch(rf"  runs/{writer.run.path.name}, [\d.]+ kB", second)
    assert json.loads(rltune("status", "--json").out)["trials"][0]["status"] == "done"


def test_clean_says_first_and_then_does(rltune, tmp_path):
    writer = finished_sweep(tmp_path)
    torn = writer.run.trial_dirs()[0].checkpoints / "torn-step-000004"
    torn.mkdir(parents=True)
    shown = rltune("clean", "--dry-run")
    assert "a checkpoint that cannot be read" in shown.out
    assert "1 item, 0 B would go" in shown.out
    assert torn.is_dir()
    assert "1 item, 0 B deleted" in rltune("clean").out
    assert not torn.exists()
    assert json.loads(rltune("clean", "--json").out)["spares"] == []


def test_clean_takes_away_what_a_killed_driver_left_of_ray(rltune, tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    writer = finished_sweep(tmp_path)
    folder = make_ray_folder(writer.run.tune / "launch-0001")
    rltune("clean", "--dry-run")
    assert folder.is_dir()
    rltune("clean")
    assert not folder.exists()


def test_a_sweep_that_is_driven_is_not_cleaned(rltune, tmp_path, impatient):
    writer = finished_sweep(tmp_path)
    with take_driver_lock(writer.run.lock, argv=["rltune"]):
        refused = rltune("clean", "--dry-run")
    assert refused.code == 2
    assert "already driven by process" in refused.err


@pytest.mark.parametrize("given", ["examples.my_env:MyEnv", "examples/my_env.yaml"])
def test_code_of_ones_own_can_be_refused_where_it_is_only_played(rltune, monkeypatch, given):
    monkeypatch.chdir(ROOT)
    refused = rltune("play", given, "--solver", "--no-custom-code")
    assert refused.code == 2
    assert f"error: {given}: env.factory: 'examples.my_env:MyEnv' is custom code" in refused.err


def test_a_key_in_a_config_is_refused_and_not_repeated(rltune, tmp_path, monkeypatch):
    """It would stand in plan.json, in each trial's config.yaml and spec.json, and at W&B."""
    monkeypatch.setenv("SOME_API_KEY", key := "sk-0123456789")
    write_sweep(tmp_path)
    refused = rltune("sweep", "sweeps/kl.yaml", "--set", f"tracking.project=of-{key}")
    assert refused.code == 2
    assert "tracking.project: this is a key or a password" in refused.err
    assert key not in refused.err
    assert not any(tmp_path.rglob("plan.json"))


def test_code_of_ones_own_can_be_refused_where_a_model_plays_it(rltune, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    refused = rltune("chat", "model", "--env", "os:abort", "--no-custom-code")
    assert refused.code == 2
    assert "error: os:abort: env.factory: 'os:abort' is custom code" in refused.err


def test_code_of_ones_own_can_be_refused_where_it_scores_problems(rltune, tmp_path, monkeypatch):
    (tmp_path / "p.jsonl").write_text('{"question": "1?", "answer": "1"}\n')
    monkeypatch.setenv("RLTUNE_NO_CUSTOM_CODE", "1")
    refused = rltune("init", "mine", "--task", "p.jsonl", "--verifier", "os:abort")
    assert refused.code == 2
    assert "error: --verifier: 'os:abort' is custom code" in refused.err


@pytest.mark.parametrize("card", ["[1]", '{"play": 1, "prompt": 2}', '{"play": {}}'])
def test_a_damaged_card_of_a_model_is_named(rltune, tmp_path, card):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "model" / "rltune.json").write_text(card)
    refused = rltune("chat", "model")
    assert refused.code == 2
    assert refused.err.startswith("error: model/rltune.json: is no card that rltune wrote (")


def test_a_model_is_of_no_run(rltune, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    refused = rltune("chat", "model", "runs/kl-1")
    assert (refused.code, "error: runs/kl-1: model is the folder of a model" in refused.err) == (
        2,
        True,
    )


def test_a_warm_start_that_could_not_be_saved_is_not_trained(rltune, tmp_path):
    (tmp_path / "file").write_text("")
    for out in ("file", "file/below"):
        refused = rltune("warmstart", "sokoban", "--out", out)
        assert refused.code == 2
        assert f"error: --out {out}: {tmp_path}/file is a file. Give another one." in refused.err


def test_a_bundle_that_could_not_be_saved_is_not_made(rltune, tmp_path):
    (tmp_path / "file").write_text("")
    refused = rltune("bundle", "--out", "file/x.zip")
    assert refused.err == (
        f"error: --out file/x.zip: {tmp_path}/file is a file. Give another file.\n"
    )


@pytest.mark.parametrize("command", ["check", "plan", "sweep"])
def test_a_study_in_place_of_a_sweep_is_told_apart(rltune, tmp_path, command):
    (tmp_path / "s.yaml").write_text("name: s\nquestion: q\nsweeps: [{name: a, file: a.yaml}]\n")
    refused = rltune(command, "s.yaml")
    said = "s.yaml: is a study file, which lists sweep files. Run it: rltune study s.yaml."
    assert refused.code == 2
    assert (said in refused.err) is (command != "check")  # which takes a study, too


@pytest.mark.parametrize("command", ["check", "plan", "sweep"])
def test_code_of_ones_own_is_listed_and_can_be_refused(rltune, command):
    file = str(ROOT / "examples" / "my_advantage.yaml")
    refused = rltune(command, file, "--no-custom-code")
    assert refused.code == 2
    assert "'examples.my_advantage:rank' is custom code" in refused.err
    if command == "check":
        assert "advantage.estimator: examples.my_advantage:rank" in rltune(command, file).out


def test_status_of_a_failed_trial_is_code_1(rltune, tmp_path):
    writer = FolderWriter(tmp_path)
    writer.fail(writer.spec(TREATED, 0), CRASH)
    result = rltune("status", str(writer.run.path))
    assert result.code == 1
    assert "FAILED at step 7: kl_loss_coef=0.1, seed 0: RuntimeError: out of memory" in result.out


def test_status_watch_ends_without_a_driver(rltune, tmp_path):
    finished_sweep(tmp_path)
    assert rltune("status", "--watch").code == 0


def test_runs_dir_comes_from_the_environment(rltune, tmp_path, monkeypatch):
    finished_sweep(tmp_path)
    (tmp_path / "runs").rename(tmp_path / "elsewhere")
    monkeypatch.setenv("RLTUNE_RUNS_DIR", "elsewhere")
    assert rltune("status").out.startswith("kl: 6 done")


def test_a_trial_folder_is_pointed_to_its_run(rltune, tmp_path):
    writer = finished_sweep(tmp_path)
    trial = writer.run.trial(writer.specs[0].trial_id).path
    assert rltune("audit", str(trial)).err == (
        f"error: {trial}: this is one trial. Give its run folder, {writer.run.path}.\n"
    )


def test_the_folder_of_all_runs_is_no_run(rltune, tmp_path):
    name = finished_sweep(tmp_path).run.path.name
    assert rltune("status", "runs").err == (
        "error: runs: this is not a run folder; it has no sweep.yaml. "
        f"Give one inside it, such as runs/{name}.\n"
    )


def test_audit_code_follows_the_verdict(rltune, tmp_path):
    writer = finished_sweep(tmp_path)
    assert rltune("audit").code == 0
    assert json.loads(rltune("audit", "--json").out)["ok"] is True
    writer.start(writer.spec(CONTROL, 0), commit="beef")
    result = rltune("audit")
    assert result.code == 1
    assert "Audit FAILED" in result.out


def test_an_incomplete_audit_is_no_failure(rltune, tmp_path):
    writer = FolderWriter(tmp_path)
    assert rltune("audit").code == 0
    writer.finish(writer.spec(CONTROL, 0), {0: 4, 10: 5, 20: 6})
    result = rltune("audit")
    assert result.code == 0
    assert "Audit incomplete (1 of 6 trials finished)" in result.out
    found = json.loads(rltune("audit", "--json").out)
    assert (found["ok"], found["verdict"]) == (False, "incomplete")


def test_the_audit_of_a_confounded_sweep_says_why_it_ran(rltune, tmp_path):
    writer = finished_sweep(tmp_path)
    write_json_atomic(writer.run.comparability, {"ok": False, "allow_confounded": "to see it"})
    result = rltune("audit")
    assert result.code == 1
    assert "CONFOUNDED" in result.out
    assert "to see it" in result.out
    assert "passed" not in result.out


@pytest.fixture
def lineage(tmp_path):
    """A baseline, a crash, and a discarded trial."""
    writer = finished_sweep(tmp_path)
    store = LineageStore(writer.run.results, "heldout/success_rate", "max")
    context = RowContext(
        metric_name="heldout/success_rate", metric_mode="max", timestamp="2026-01-31T12:00:00Z",
        commit="c0ffee",
    )  # fmt: skip
    for spec, outcome in (
        (writer.spec(CONTROL, 0), None),
        (writer.spec(TREATED, 0), None),
        (writer.spec(TREATED, 1), CRASH),
    ):
        result = outcome or writer.run.trial(spec.trial_id).read_done()
        store.record(lambda rows, s=spec, o=result: row_for(s, o, rows, context))
    return writer


def test_lineage_show(rltune, lineage):
    result = rltune("lineage", "show")
    assert result.code == 0
    assert_golden("lineage_80", masked(result.out))
    data = json.loads(rltune("lineage", "show", str(lineage.run.results), "--json").out)
    assert [row["status"] for row in data["rows"]] == ["baseline", "discard", "crash"]


def test_lineage_warns_of_a_torn_row(rltune, lineage):
    with lineage.run.results.open("a") as file:
        file.write("half a row")
    result = rltune("lineage", "show")
    assert "warning: " in result.err
    assert "torn last line of 10 bytes" in result.err


def test_lineage_before_any_end(rltune, tmp_path):
    writer = FolderWriter(tmp_path)
    assert rltune("lineage", "show").err == (
        f"error: runs/{writer.run.path.name}/results.tsv: no trial has ended yet, so there is no "
        "lineage. `rltune status` shows what runs.\n"
    )


def test_init_writes_sweeps_that_check(rltune, tmp_path):
    result = rltune("init", "study")
    assert result.code == 0
    assert "wrote study/sweeps/quickstart.yaml" in result.out
    assert result.out.splitlines()[-1] == "Next: cd study && rltune check sweeps/quickstart.yaml"
    sweeps = sorted((tmp_path / "study" / "sweeps").glob("*.yaml"))
    shipped = sorted((Path(__file__).parents[2] / "sweeps").glob("*.yaml"))
    assert [path.name for path in sweeps] == [path.name for path in shipped] != []
    for path in sweeps:
        assert path.read_text().startswith("# yaml-language-server: $schema=sweep.schema.json\n")
    for name in ("quickstart", "qa_kl", "frozenlake_slip"):
        assert rltune("check", f"study/sweeps/{name}.yaml").code == 0
    schema = json.loads((tmp_path / "study" / "sweeps" / "sweep.schema.json").read_text())
    assert schema == json.loads(rltune("check", "--schema").out)


def test_init_never_overwrites_without_force(rltune, tmp_path):
    rltune("init", "study")
    mine = tmp_path / "study" / "sweeps" / "kl.yaml"
    mine.write_text("mine\n")
    refused = rltune("init", "study")
    assert refused.code == 2
    assert refused.err == (
        "error: study/sweeps/kl.yaml: exists and differs from the starter. "
        "Move it away, or replace it with --force.\n"
    )
    assert mine.read_text() == "mine\n"
    forced = rltune("init", "study", "--force")
    assert forced.out.startswith("wrote study/sweeps/kl.yaml\n")
    assert "mine" not in mine.read_text()


def test_warmstart_leaves_a_full_folder_alone(rltune, tmp_path):
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "model.safetensors").touch()
    assert rltune("warmstart", "sokoban", "--out", "w").err == (
        "error: --out w: the folder has files in it. Give another one, or --force to write into "
        "it.\n"
    )


ESTIMATORS = """\
  key: advantage
  values:
    grpo: {kind: grpo}
    center: {kind: grpo_center}
    bare: {kind: grpo, normalize_std: false}
  control: grpo
  why: an estimator is its name and its own keys
"""
TWO_NAMES = SWEEP[: SWEEP.index("  key: loss.kl")] + ESTIMATORS + SWEEP[SWEEP.index("seeds:") :]
TWO_NAMES = TWO_NAMES.replace("protocol: figure3\n", "").replace(
    "  loss.kl_type: k2\n", "  loss.use_kl_loss: false\n  loss.kl_loss_coef: 0.0\n"
)


def test_what_keys_cannot_tell_is_said_and_deep_tells_it(rltune, tmp_path, probe_here):
    write_sweep(tmp_path, TWO_NAMES)
    keys = rltune("check", "sweeps/kl.yaml")
    assert keys.code == 0
    assert "also compares the gradients of 3 pairs" in " ".join(keys.out.split())
    deep = json.loads(rltune("check", "--deep", "--json", "sweeps/kl.yaml").out)
    assert deep["ok"] is False
    (error,) = deep["sweeps"][0]["errors"]
    assert error["rule"] == "S6"
    assert "'advantage=center' and 'advantage=bare' are the same run" in error["message"]


def test_a_sweep_of_one_run_under_two_names_is_refused_in_one_wording(rltune, tmp_path, probe_here):
    write_sweep(tmp_path, TWO_NAMES)
    refused = rltune("sweep", "sweeps/kl.yaml")
    assert refused.code == 2
    assert "S6 error 'advantage=center' and 'advantage=bare' are the same run" in " ".join(
        refused.out.split()
    )
    assert refused.err.startswith("error: sweeps/kl.yaml: S6: 'advantage=center' and")
    assert not (tmp_path / "runs").exists()
