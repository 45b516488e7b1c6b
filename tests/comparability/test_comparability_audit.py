from dataclasses import replace

import pytest

from rltune.comparability import audit
from rltune.comparability.audit import TrialRecord
from rltune.comparability.judged import judged_findings
from rltune.spec.expand import expand
from rltune.spec.schema.trial import TrialConfig, to_plain
from rltune.types import TrialResult, TrialStatus

STEPS = 4
PROVENANCE = {
    "commit": "c0ffee",
    "dirty": False,
    "diff_sha256": "",
    "source_sha256": "s",
    "versions": {"torch": "2.13.0", "ray": "2.60.0"},
    "device": "cpu",
    "dtype": "float32",
    "engine": "torch",
    "threads": 1,
    "weights_sha256": "w",
    "tokenizer_sha256": "t",
    "prompt_sha256": "p",
    "manifest_sha256": "m",
    "host": "differs anyway",
}


def row(step, seed, updates=4):
    """One metrics line; counters are cumulative."""
    if step == 0:
        return {"step": 0, "heldout/success_rate": 0.5}
    return {
        "step": step,
        "rollout/task_hash": f"tasks of seed {seed} step {step}",
        "rollout/task_digests": " ".join(f"{seed}.{8 * step + k}" for k in range(8)),
        "rollout/sampled_hash": f"{seed}-{step}",
        "budget/rollouts": 128 * step,
        "budget/generated_tokens": 1000 * step,
        "budget/optimizer_steps": updates * step,
    }


def gate(step):
    return {"step": step, "tasks_sha256": "h", "temperature": 1.0, "n": 2, "success": [0, 1]}


def result(trial_id, status=TrialStatus.DONE, step=STEPS, reason=""):
    return TrialResult(
        trial_id=trial_id, status=status, reason=reason, final_step=step, best_step=step,
        heldout_metric=0.5, base_metric=0.5, final_metric=0.5, pool_metric=0.5,
        metrics_sha256="", train_s=9.0, total_s=10.0,
    )  # fmt: skip


def record(spec, updates=4):
    return TrialRecord(
        spec=spec,
        provenance=PROVENANCE,
        metrics=tuple(row(step, spec.seed, updates) for step in range(STEPS + 1)),
        heldout=tuple(gate(step) for step in (0, 2, 4)),
        result=result(spec.trial_id),
    )


@pytest.fixture
def records(load):
    overrides = [f"budget.steps={STEPS}", "gate.every=2"]
    return [record(spec) for spec in expand(load(overrides=overrides, seeds=[0, 1]))]


def audit_trials(records, *, is_driven=True):
    return audit.audit_trials(records, is_driven=is_driven)


def lines(records, *, is_driven=True):
    report = audit_trials(records, is_driven=is_driven)
    return [str(finding) for finding in (*report.errors, *report.warnings)]


def name(record):
    return record.spec.trial_id


def cut(record, step):
    """A record as it was after `step`, still running."""
    return replace(
        record,
        metrics=record.metrics[: step + 1],
        heldout=tuple(gate for gate in record.heldout if gate["step"] <= step),
        result=None,
    )


def test_equal_trials_pass_and_their_budget_is_counted(records):
    report = audit_trials(records)
    assert (report.ok, report.errors, report.warnings) == (True, (), ())
    assert {row.steps for row in report.budget.rows} == {(4, 4)}
    assert [(r.condition, r.trials) for r in report.budget.rows] == [
        ("kl_loss_coef=0.0", 2), ("kl_loss_coef=0.01", 2), ("kl_loss_coef=0.1", 2),
    ]  # fmt: skip
    assert report.budget.rows[0].consumed == {
        "budget/rollouts": 512.0,  # 4 steps x 128
        "budget/generated_tokens": 4000.0,
        "budget/optimizer_steps": 16.0,  # 4 x 4
        "wall_s": 10.0,
    }
    assert {d for pair in report.budget.common for d in pair.differences.values()} == {0.0}
    assert report.budget.ends == ()


@pytest.mark.parametrize(
    ("field", "value", "shown", "usual"),
    [
        ("commit", "dead", "commit", "'c0ffee'"),
        ("dirty", True, "dirty", "false"),
        ("diff_sha256", "x", "diff_sha256", "''"),
        ("source_sha256", "x", "source_sha256", "'s'"),
        ("threads", 2, "threads", "1"),
        ("device", "H100", "device", "'cpu'"),
        ("dtype", "bfloat16", "dtype", "'float32'"),
        ("engine", "vllm", "engine", "'torch'"),
        ("weights_sha256", "x", "weights_sha256", "'w'"),
        ("tokenizer_sha256", "x", "tokenizer_sha256", "'t'"),
        ("prompt_sha256", "x", "prompt_sha256", "'p'"),
        ("manifest_sha256", "x", "manifest_sha256", "'m'"),
    ],
)
def test_a1_one_odd_trial_is_named(records, field, value, shown, usual):
    odd = records[2] = replace(records[2], provenance={**PROVENANCE, field: value})
    others = f"{name(records[0])}, {name(records[1])}, {name(records[3])} and 2 more"
    new = "true" if value is True else repr(value)
    assert lines(records) == [
        f"A1 error: {shown} differs: {usual} in {others}; {new} in {name(odd)}. "
        "Run the sweep again from one clean checkout on one kind of machine."
    ]


def test_a1_versions_are_compared_by_package(records):
    versions = {"torch": "2.12.0", "ray": "2.60.0"}
    records[0] = replace(records[0], provenance={**PROVENANCE, "versions": versions})
    assert lines(records)[0].startswith(
        f"A1 error: version of torch differs: '2.12.0' in {name(records[0])}; '2.13.0' in "
    )
    assert len(lines(records)) == 1


REMOTE = {"server": "rltune 1", "sdk": "0.38.0", "base_model": "tiny/toy", "lora_rank": 8}


@pytest.mark.parametrize(
    ("part", "usual", "other"),
    [
        ("server", "'rltune 1'", "unknown"),
        ("sdk", "'0.38.0'", "0.38.1"),
        ("base_model", "'tiny/toy'", "tiny/x"),
        ("lora_rank", "8", 4),
    ],
)
def test_a1_services_are_compared_part_by_part(records, part, usual, other):
    records = [replace(r, provenance={**PROVENANCE, "remote": REMOTE}) for r in records]
    assert lines(records) == []
    odd = {**PROVENANCE, "remote": {**REMOTE, part: other}}
    found = lines([replace(records[0], provenance=odd), *records[1:]])
    (line,) = found
    assert line.startswith(f"A1 error: remote {part} differs: ")
    assert f"{usual} in " in line
    assert f"{other!r} in {name(records[0])}" in line


def test_a1_a_trial_trained_here_is_not_beside_trials_of_a_service(records):
    records = [replace(r, provenance={**PROVENANCE, "remote": REMOTE}) for r in records]
    here = replace(records[0], provenance={**PROVENANCE, "remote": {}})
    found = lines([here, *records[1:]])
    assert [line.split(" differs")[0] for line in found] == [
        f"A1 error: remote {part}" for part in sorted(REMOTE)
    ]


@pytest.mark.parametrize("package", ["math-verify", "textworld"])
def test_a1_a_package_of_some_trials_has_one_version_there(records, package):
    """What grades problems, and what custom code imports."""

    def graded(index, version):
        versions = {**PROVENANCE["versions"], package: version}
        return replace(records[index], provenance={**PROVENANCE, "versions": versions})

    records[:2] = graded(0, "0.9.0"), graded(1, "0.9.0")
    assert lines(records) == []
    records[1] = graded(1, "0.8.0")
    (found,) = lines(records)
    assert found.startswith(f"A1 error: version of {package} differs: '0.")


def test_a1_what_was_not_recorded_proves_nothing(records):
    records[0] = replace(records[0], provenance={"commit": "c0ffee"})
    assert lines(records)[0] == (
        f"A1 error: dirty was not recorded in {name(records[0])}. "
        "Run the sweep again from one clean checkout on one kind of machine."
    )
    assert len(lines(records)) == 12  # every field but commit


def test_a1_records_from_before_there_was_a_field(records):
    old = {key: value for key, value in PROVENANCE.items() if key != "tokenizer_sha256"}
    records = [replace(record, provenance=old) for record in records]
    assert lines(records) == []
    records[0] = replace(
        records[0], provenance=PROVENANCE
    )  # some have it: the others prove nothing
    assert lines(records)[0].startswith("A1 error: tokenizer_sha256 was not recorded in ")


EARLIER = {**PROVENANCE, "attempt": 1, "host": "elsewhere", "started": "2026-01-31T12:00:00Z"}


@pytest.mark.parametrize(
    ("field", "value", "shown"),
    [
        ("commit", "dead", "commit was 'dead' in attempt 1 and 'c0ffee'"),
        ("dirty", True, "dirty was true in attempt 1 and false"),
        ("diff_sha256", "x", "diff_sha256 was 'x' in attempt 1 and ''"),
        ("source_sha256", "x", "source_sha256 was 'x' in attempt 1 and 's'"),
        ("versions", {"torch": "2.12.0", "ray": "2.60.0"},
         "version of torch was '2.12.0' in attempt 1 and '2.13.0'"),
        ("versions", {"torch": "2.13.0"},
         "version of ray was '<absent>' in attempt 1 and '2.60.0'"),
        ("device", "H100", "device was 'H100' in attempt 1 and 'cpu'"),
        ("dtype", "bfloat16", "dtype was 'bfloat16' in attempt 1 and 'float32'"),
        ("engine", "vllm", "engine was 'vllm' in attempt 1 and 'torch'"),
        ("threads", 4, "threads was 4 in attempt 1 and 1"),
        ("weights_sha256", "x", "weights_sha256 was 'x' in attempt 1 and 'w'"),
        ("tokenizer_sha256", "x", "tokenizer_sha256 was 'x' in attempt 1 and 't'"),
        ("manifest_sha256", "x", "manifest_sha256 was 'x' in attempt 1 and 'm'"),
    ],
)  # fmt: skip
def test_a1_an_earlier_attempt_on_something_else_is_named(records, field, value, shown):
    """Steps of the first attempt are in the trial, however well the last ones agree."""
    provenance = {**PROVENANCE, "attempt": 2, "earlier": [{**EARLIER, field: value}]}
    records[2] = replace(records[2], provenance=provenance)
    assert lines(records) == [
        f"A1 error: {name(records[2])}: {shown} in the last one. "
        "Delete this trial and run it again."
    ]


def test_a1_every_earlier_attempt_is_compared(records):
    earlier = [{**EARLIER, "commit": "dead"}, {**EARLIER, "attempt": 2}, {**EARLIER, "attempt": 3}]
    for order in (earlier, earlier[::-1]):
        provenance = {**PROVENANCE, "attempt": 4, "earlier": order}
        records[2] = replace(records[2], provenance=provenance)
        assert [line.split(" in attempt")[0] for line in lines(records)] == [
            f"A1 error: {name(records[2])}: commit was 'dead'"
        ]


def reading(record, inputs, **more):
    """A record of a trial that read files."""
    return replace(record, provenance={**PROVENANCE, "inputs": inputs, **more})


def test_a1_a_file_has_one_content_in_all_trials(records):
    """A data file or a module that was edited during the sweep; an axis may choose among files."""
    files = {"levels.txt": "e" * 64, "my_env.py": "f" * 64}
    records = [reading(record, files) for record in records]
    records[1] = reading(records[1], {**files, "only_here.py": "a" * 64})
    assert lines(records) == []
    records[2] = reading(records[2], {**files, "levels.txt": "0" * 64})
    (line,) = lines(records)
    assert line.startswith("A1 error: input levels.txt differs: eeeeeeeeee in ")
    assert line.endswith(
        f"0000000000 in {name(records[2])}. Put the file back as it was for the trials to keep, "
        "delete the folders of the others, and run the sweep again."
    )


@pytest.mark.parametrize(
    ("section", "other"),
    [
        ("reward", "success"),
        ("advantage", {"kind": "grpo"}),
        ("env", {"kind": "frozen_lake", "prompt": "compact"}),
        ("policy", {"model": "another"}),
    ],
)
def test_a1_no_axis_excuses_a_file_that_changed(records, section, other):
    records = [reading(record, {"corpus.jsonl": "e" * 64}) for record in records]
    config = TrialConfig.model_validate({**records[1].spec.config, section: other})
    spec = replace(records[1].spec, config=to_plain(config))
    records[1] = reading(replace(records[1], spec=spec), {"corpus.jsonl": "0" * 64})
    assert any("input corpus.jsonl differs" in line for line in lines(records))


def test_a1_a_file_has_one_content_in_all_attempts(records):
    now = {"levels.txt": "e" * 64}
    records = [reading(record, now) for record in records]
    before = {**EARLIER, "inputs": {"levels.txt": ""}}
    records[2] = reading(records[2], now, earlier=[{**before, "weights_sha256": ""}])
    assert lines(records) == []  # it ended before it had a policy
    records[2] = reading(records[2], now, earlier=[before])
    (line,) = lines(records)
    assert f"no such file in {name(records[2])}." in line


def test_a1_a_file_that_changed_while_a_trial_ran(records):
    now = {"levels.txt": "e" * 64}
    records = [reading(record, now) for record in records]
    records[2] = reading(records[2], now, inputs_changed=["levels.txt"])
    earlier = [{**EARLIER, "inputs": now, "inputs_changed": ["levels.txt"]}]
    records[3] = reading(records[3], now, earlier=earlier)
    assert lines(records) == [
        "A1 error: input levels.txt changed while these trials ran: "
        f"{name(records[2])}, {name(records[3])}. "
        "Delete the folders of these trials, and run the sweep again."
    ]


def test_a1_inputs_of_an_older_run_are_not_recorded(records):
    assert lines(records) == []  # nowhere
    mixed = [reading(record, {}) for record in records[:-1]] + records[-1:]
    (line,) = lines(mixed)
    assert line.startswith(f"A1 error: inputs were not recorded in {name(records[-1])}, ")


@pytest.mark.parametrize(
    "attempt",
    [
        pytest.param(EARLIER, id="the same, on another host"),
        pytest.param({"attempt": 1, "commit": "c0ffee", "threads": None}, id="an old record"),
        pytest.param({**EARLIER, "commit": "dead", "weights_sha256": ""}, id="had no policy yet"),
    ],
)
def test_a1_earlier_attempts_that_prove_no_difference(records, attempt):
    provenance = {**PROVENANCE, "attempt": 2, "earlier": [attempt]}
    records[2] = replace(records[2], provenance=provenance)
    assert lines(records) == []


def of_size_7(record, tasks="x"):
    """A record whose condition changes the room, and with it every task."""
    config = {**record.spec.config, "env": {**record.spec.config["env"], "size": 7}}
    return replace(
        record,
        spec=replace(record.spec, config=config),
        provenance={**PROVENANCE, "manifest_sha256": "of size 7"},
        metrics=tuple(
            {**row, "rollout/task_hash": tasks} if row["step"] else row for row in record.metrics
        ),
        heldout=tuple({**gate, "tasks_sha256": "of size 7"} for gate in record.heldout),
    )


def test_an_axis_over_the_tasks_is_said_and_is_not_ok(records):
    for i in (1, 4):  # the same condition under both seeds
        records[i] = of_size_7(records[i])
    report = audit_trials(records)
    assert report.errors == ()
    assert [str(finding).split(":")[0] for finding in report.warnings] == ["A1 warning"] + [
        "A2 warning"
    ] * 2 + ["A5 warning"]
    said = [finding.message for finding in report.warnings]
    assert said[0].startswith("manifest_sha256 differs with env.size: 'm' in ")
    assert said[1].startswith("seed 0 drew other tasks with env.size from step 1 on: ")
    assert said[2].startswith("seed 1 drew other tasks with env.size from step 1 on: ")
    assert said[3].startswith("held-out tasks_sha256 differs with env.size: 'h' in ")
    assert said[3].endswith(f"'of size 7' in {name(records[1])}, {name(records[4])}.")


def test_an_axis_over_the_tasks_excuses_no_difference_within_a_condition(records):
    for i in (1, 4):
        records[i] = of_size_7(records[i])
    provenance = {**records[4].provenance, "manifest_sha256": "m"}
    records[4] = replace(records[4], provenance=provenance, heldout=records[0].heldout)
    errors = [finding.message for finding in audit_trials(records).errors]
    assert errors[0].startswith("manifest_sha256 differs: 'of size 7' in ")
    assert errors[1].startswith("held-out tasks_sha256 differs: 'of size 7' in ")
    assert len(errors) == 2
    # two conditions of one size must draw the same tasks
    other = [*records[:1], of_size_7(records[1]), of_size_7(records[2], tasks="y"), *records[3:]]
    assert any(
        finding.message.startswith("seed 0 drew other tasks from step 1 on: 'x' in ")
        for finding in audit_trials(other).errors
    )


@pytest.mark.parametrize("key", ["prompt", "format_penalty"])
def test_an_axis_of_the_env_that_leaves_the_tasks_alone_excuses_nothing(records, key):
    """Grouping by the whole env section would compare each condition with itself only."""
    config = {**records[1].spec.config, "env": {**records[1].spec.config["env"], key: -0.5}}
    spec = replace(records[1].spec, config=config)
    assert lines([replace(records[1], spec=spec), *records[2:]]) == []
    other = of_size_7(records[1])
    records[1] = replace(other, spec=spec)
    assert [line[:8] for line in lines(records)] == ["A1 error", "A2 error", "A5 error"]


def test_a2_first_step_with_other_prompts_is_named(records):
    metrics = list(records[1].metrics)
    metrics[3] = {**metrics[3], "rollout/task_hash": "other"}
    metrics[4] = {**metrics[4], "rollout/task_hash": "other too"}
    records[1] = replace(records[1], metrics=tuple(metrics))
    assert lines(records) == [
        "A2 error: seed 0 drew other tasks from step 3 on: "
        f"'tasks of seed 0 step 3' in {name(records[0])}, {name(records[2])}; "
        f"'other' in {name(records[1])}. Delete these trials and run them again."
    ]


def test_a2_a_step_without_a_hash_proves_nothing(records):
    metrics = list(records[0].metrics)
    metrics[2] = {key: value for key, value in metrics[2].items() if key != "rollout/task_hash"}
    records[0] = replace(records[0], metrics=tuple(metrics))
    assert lines(records) == [
        f"A2 error: {name(records[0])} has no task hash for step 2. "
        "Delete this trial and run it again."
    ]


def sampled(record, digest):
    """A record whose step 1 sampled other tokens."""
    first = {**record.metrics[1], "rollout/sampled_hash": digest}
    return replace(record, metrics=(record.metrics[0], first, *record.metrics[2:]))


def with_config(record, section, **keys):
    """A record of another config."""
    config = {**record.spec.config, section: {**record.spec.config[section], **keys}}
    return replace(record, spec=replace(record.spec, config=config))


def test_a2_other_luck_in_step_1_without_a_reason_is_an_error(records):
    records[1] = sampled(records[1], "other")
    assert lines(records) == [
        "A2 error: seed 0 sampled other tokens in step 1, before any update: "
        f"'0-1' in {name(records[0])}, {name(records[2])}; 'other' in {name(records[1])}. "
        "Nothing in their configs or machines explains it. Find what draws outside the config (an "
        "environment or a score with randomness of its own, a search service that answers "
        "otherwise), repair it, and run the sweep in another --runs-dir."
    ]


@pytest.mark.parametrize(
    ("section", "keys", "is_compared"),
    [
        ("loss", {"kind": "gspo"}, True),
        ("optim", {"lr": 0.5}, True),
        ("critic", {"lr": 0.5}, True),
        ("advantage", {"kind": "rloo"}, True),
        ("rollout_filter", {"value": 0.5}, True),
        ("env", {"format_penalty": -0.5}, True),
        ("env", {"prompt": "natural", "max_turns": 3}, False),
        ("policy", {"dtype": "bfloat16"}, False),
        ("rollout", {"temperature": 0.5}, False),
        ("rollout", {"max_response_tokens": 3}, False),
    ],
)
def test_a2_luck_is_compared_where_the_axis_cannot_change_it(records, section, keys, is_compared):
    records[1] = sampled(with_config(records[1], section, **keys), "other")
    found = [line for line in lines(records) if "sampled other tokens" in line]
    assert len(found) == is_compared


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"cpu_model": "b"}, "Rounding differs between machines, and cpu_model does: 'a' in "),
        (
            {"cpu_model": "a", "earlier": [{"weights_sha256": "w", "cpu_model": "b"}]},
            "Rounding differs between machines, and cpu_model does: 'a' in ",
        ),
    ],
)
def test_a2_other_luck_on_another_machine_is_named_and_explained(records, change, why):
    records = [replace(r, provenance={**PROVENANCE, "cpu_model": "a"}) for r in records]
    other = replace(records[1], provenance={**PROVENANCE, **change})
    assert lines([records[0], other, *records[2:]]) == []  # equal tokens: nothing to explain
    records[1] = sampled(other, "other")
    report = audit_trials(records)
    assert report.ok
    (line,) = lines(records)
    assert line.startswith("A2.luck warning: seed 0 sampled other tokens in step 1")
    assert why in line
    assert "one kind of machine" in line


def test_a2_other_luck_on_a_gpu_or_after_a_fault_is_a_warning(records):
    gpu = [replace(r, provenance={**PROVENANCE, "device": "H200"}) for r in records]
    (line,) = lines([gpu[0], sampled(gpu[1], "other"), *gpu[2:]])
    assert "Only the torch engine on a CPU rounds alike every time." in line
    first = {**records[1].metrics[1], "rollout/fault_count": 2.0}
    metrics = (records[1].metrics[0], first, *records[1].metrics[2:])
    records[1] = sampled(replace(records[1], metrics=metrics), "other")
    (line,) = lines(records)
    assert f"Episodes of that step had a fault in {name(records[1])}." in line


def test_a2_an_older_run_did_not_record_its_luck(records):
    def old(record):
        new = ("rollout/sampled_hash", "rollout/task_digests")
        rows = [{k: v for k, v in row.items() if k not in new} for row in record.metrics]
        return replace(record, metrics=tuple(rows))

    report = audit_trials([old(record) for record in records])
    assert report.ok
    (line,) = [str(finding) for finding in report.warnings]
    assert line.startswith("A2.not_recorded warning: the tokens sampled in step 1 are not recorded")
    mixed = [with_config(old(records[0]), "rollout", groups=4, group_size=32), *records[1:]]
    assert [line.split(":")[0] for line in lines(mixed)] == ["A2.not_recorded warning"]
    assert "several values of rollout.groups" in lines(mixed)[0]


def of_groups(record, groups, start=0):
    """A record that draws its seed's stream in steps of another size."""
    seed = record.spec.seed

    def digests(step):
        places = range(start + groups * step, start + groups * step + groups)
        return " ".join(f"{seed}.{place}" for place in places)

    rows = [
        {**row, "rollout/task_digests": digests(row["step"] - 1 + 8 // groups),
         "rollout/task_hash": f"{groups} at {row['step']}"}
        if row["step"] else row
        for row in record.metrics
    ]  # fmt: skip
    changed = with_config(record, "rollout", groups=groups, group_size=128 // groups)
    return sampled(replace(changed, metrics=tuple(rows)), f"{groups}")


def test_a2_a_group_size_axis_draws_one_stream_in_other_portions(records):
    """Steps of 4 tasks go half as far through the stream as steps of 8."""
    for i in (1, 4):
        records[i] = of_groups(records[i], 4)
    assert lines(records) == []
    records[1] = of_groups(records[1], 4, start=1)
    (line,) = lines(records)
    assert line.startswith("A2 error: seed 0 drew other tasks from task 1 on: '0.8' in ")
    assert f"'0.9' in {name(records[1])}." in line


def test_a5_does_not_advise_what_cannot_help(records):
    """A temperature that the config asks for is the same after a second run."""
    other = with_config(records[1], "gate", temperature=0.3)
    gates = tuple({**row, "temperature": 0.3} for row in other.heldout)
    (line,) = lines([records[0], replace(other, heldout=gates), *records[2:]])
    assert line.endswith("Their configs ask for it: give all conditions one gate.temperature.")


CONTROL, LOW, HIGH = "kl_loss_coef=0.0", "kl_loss_coef=0.01", "kl_loss_coef=0.1"
EQUAL = "Compare at equal policy updates, not at equal training steps."


def of_rule(records, rule):
    return [line for line in lines(records) if line.startswith(rule)]


def updated(record, updates, counter="budget/policy_updates"):
    """A record that made so many policy updates a step."""
    rows = (r | ({counter: updates * r["step"]} if r["step"] else {}) for r in record.metrics)
    return replace(record, metrics=tuple(rows))


def in_condition(records, label, change):
    return [change(r) if r.spec.condition == label else r for r in records]


def stopped(record, step):
    """A record that stopped early, for a reason."""
    short = cut(record, step)
    done = result(name(short), TrialStatus.STOPPED_EARLY, step, "reward collapsed")
    return replace(short, result=done)


def test_a3_warns_over_five_percent_of_optimiser_steps(records):
    records[1] = record(records[1].spec, updates=2)
    report = audit_trials(records)
    assert report.ok
    # condition 0.01: mean of 8 and 16 is 12; (12 - 16) / 16
    assert report.budget.common[0].differences["budget/optimizer_steps"] == pytest.approx(-0.25)
    assert [str(finding) for finding in report.warnings] == [
        "A3 warning: kl_loss_coef=0.01 made 25% fewer optimiser steps than the control to step 4 "
        f"(12 and 16, mean over 2 seeds). {EQUAL}"
    ]


def test_a3_counts_updates_of_the_policy_where_they_were_recorded(records):
    """A critic warm-up goes through mini-batches in which the policy stands still."""
    records = [updated(r, 2 if r.spec.condition == HIGH else 4) for r in records]
    assert lines(records) == [
        "A3 warning: kl_loss_coef=0.1 made 50% fewer policy updates than the control to step 4 "
        f"(8 and 16, mean over 2 seeds). {EQUAL}"
    ]
    assert lines([updated(r, 4) for r in records]) == []


def test_a3_more_updates_than_the_control_are_named_too(records):
    records = in_condition([updated(r, 4) for r in records], LOW, lambda r: updated(r, 5))
    assert lines(records) == [
        "A3 warning: kl_loss_coef=0.01 made 20% more policy updates than the control to step 4 "
        f"(20 and 16, mean over 2 seeds). {EQUAL}"
    ]


def test_a3_at_five_percent_is_silent(records):
    def spend(record, updates):
        last = {**record.metrics[4], "budget/optimizer_steps": updates}
        return replace(record, metrics=(*record.metrics[:4], last))

    spent = [spend(r, 95 if r.spec.condition.endswith("=0.1") else 100) for r in records]
    assert lines(spent) == []  # (100 - 95) / 100
    spent = [spend(r, 94 if r.spec.condition.endswith("=0.1") else 100) for r in records]
    assert len(lines(spent)) == 1


def test_a3_two_conditions_are_close_to_the_control_and_not_to_each_other(records):
    """96, 100 and 104: each within 5 % of the control, which is what they are compared with."""
    updates = {CONTROL: 25, LOW: 24, HIGH: 26}
    assert lines([updated(r, updates[r.spec.condition]) for r in records]) == []


def test_a3_names_the_remedy_of_a_filter_that_drops(records):
    filtered = {"value": 0.5, "include_zero": False, "on_drop": "drop"}
    for i in (1, 4):
        own = records[i].spec.config
        config = {**own, "rollout_filter": {**own["rollout_filter"], **filtered}}
        records[i] = record(replace(records[i].spec, config=config), updates=2)
    assert lines(records)[0].endswith(
        "The filter dropped groups from the batch; set rollout_filter.on_drop: mask."
    )


def test_a3_a_pair_is_compared_at_the_last_step_that_both_reached(records):
    at = next(i for i, r in enumerate(records) if r.spec.condition == HIGH)
    records[at] = cut(records[at], 2)
    report = audit_trials(records)
    low, high = report.budget.common
    assert (low.steps, high.steps, high.control_steps) == ((4, 4), (2, 4), (2, 4))
    assert low.ours["budget/rollouts"] == 512
    assert high.ours["budget/rollouts"] == high.theirs["budget/rollouts"] == (256 + 512) / 2
    assert report.budget.ends == ()  # a running trial has no end
    assert report.ok
    assert [finding.rule for finding in report.warnings] == ["A4"]


def test_a3_one_that_stops_early_does_not_hide_what_the_others_did_later(records):
    """Two conditions were alike up to step 1; then one made 70 % fewer updates."""
    records = [updated(r, 10) for r in records]

    def fewer(record):
        made = (None, 10, 11, 11, 12)
        rows = tuple(
            row | ({"budget/policy_updates": made[row["step"]]} if row["step"] else {})
            for row in record.metrics
        )
        return replace(record, metrics=rows)

    records = in_condition(records, HIGH, fewer)
    alone = of_rule(records, "A3")
    assert alone == [
        "A3 warning: kl_loss_coef=0.1 made 70% fewer policy updates than the control to step 4 "
        f"(12 and 40, mean over 2 seeds). {EQUAL}"
    ]
    records = in_condition(records, LOW, lambda r: stopped(r, 1))
    assert of_rule(records, "A3") == [
        *alone,
        "A3.ends warning: kl_loss_coef=0.01 made 75% fewer policy updates than the control (10 to "
        "step 1, 40 to step 4, mean over 2 seeds). Trials of other lengths are not ranked.",
    ]
    assert [one.condition for one in audit_trials(records).budget.ends] == [LOW]


def test_a3_a_control_that_stopped_early_is_compared_with_each_at_its_step(records):
    records = in_condition([updated(r, 10) for r in records], CONTROL, lambda r: stopped(r, 1))
    report = audit_trials(records)
    assert [p.steps for p in report.budget.common] == [(1, 1), (1, 1)]
    assert [p.control_steps for p in report.budget.ends] == [(1, 1), (1, 1)]
    assert all("75% more policy updates" in line for line in of_rule(records, "A3"))


def test_a3_all_that_stopped_at_one_step_consumed_alike(records):
    assert of_rule([stopped(updated(r, 10), 2) for r in records], "A3") == []


def test_a3_without_a_control_nothing_is_compared(records):
    others = [r for r in records if r.spec.condition != CONTROL]
    found = audit_trials(others).budget
    assert (found.common, found.ends) == ((), ())
    assert len(found.rows) == 2


def test_a3_wall_time_is_compared_at_one_step_by_the_clock(records):
    def timed(record, seconds):
        rows = tuple(row | {"time": 100.0 + seconds * row["step"]} for row in record.metrics)
        return replace(record, metrics=rows)

    records = [timed(r, 3.0 if r.spec.condition == LOW else 2.0) for r in records]
    low = audit_trials(in_condition(records, LOW, lambda r: stopped(r, 2))).budget.common[0]
    assert (low.ours["wall_s"], low.theirs["wall_s"]) == (6.0, 4.0)  # 2 steps of 3 s, of 2 s
    found = audit_trials(in_condition(records, LOW, lambda r: stopped(r, 2))).budget
    assert found.ends[0].ours["wall_s"] == 10.0  # of the whole trial
    assert found.common[1].ours["wall_s"] == 10.0


AGAIN = "Delete this trial and run it again."
RESUME = "Run `rltune sweep` again; it goes on with what is missing."


def test_a4_silent_shortfall_is_an_error(records):
    short = cut(records[0], 2)
    records[0] = replace(short, result=result(name(short), step=2))
    assert of_rule(records, "A4") == [
        f"A4 error: {name(short)} ended at step 2 of 4 without a reason. {AGAIN}"
    ]
    records[0] = replace(short, result=result(name(short), TrialStatus.STOPPED_EARLY, 2))
    assert of_rule(records, "A4") == [
        f"A4 error: {name(short)} ended at step 2 of 4 without a reason. {AGAIN}"
    ]


def test_a4_named_ends_are_warnings(records):
    short = cut(records[0], 2)
    stop = result(name(short), TrialStatus.STOPPED_EARLY, 2, "5 empty filtered steps in a row")
    records[0] = replace(short, result=stop)
    assert of_rule(records, "A4") == [
        f"A4 warning: {name(short)} stopped at step 2 of 4: 5 empty filtered steps in a row. "
        "Report it as an early stop; it is not a success."
    ]
    records[0] = replace(short, failure={"reason": "out of memory"})
    assert of_rule(records, "A4") == [
        f"A4 warning: {name(short)} failed at step 2 of 4: out of memory. {RESUME}"
    ]
    records[0] = replace(short, failure={"reason": "the driver was stopped", "kind": "preempted"})
    assert of_rule(records, "A4") == [
        f"A4 warning: {name(short)} stopped at step 2 of 4: the driver was stopped. {RESUME}"
    ]
    records[0] = replace(short, failure={"reason": ""})
    assert of_rule(records, "A4") == [
        f"A4 error: {name(short)} failed at step 2 without a reason. {RESUME}"
    ]


def test_a4_a_trial_that_nobody_drives_is_a_silent_shortfall(records):
    records[0] = cut(records[0], 2)
    assert lines(records, is_driven=False) == [
        f"A4 error: {name(records[0])} is at step 2 of 4, has no marker, and nobody drives it. "
        f"{RESUME}"
    ]
    assert lines(records, is_driven=True) == [
        f"A4 warning: {name(records[0])} is at step 2 of 4. Wait for its driver."
    ]


def test_a4_pending_trials_are_named_and_break_nothing(records):
    records[0] = TrialRecord(spec=records[0].spec, provenance={})
    for is_driven in (True, False):
        assert lines(records, is_driven=is_driven) == [
            f"A4 warning: {name(records[0])} has not started. {RESUME}"
        ]


def test_a4_a_marker_that_the_metrics_do_not_support(records):
    records[0] = replace(cut(records[0], 3), result=result(name(records[0])))
    assert (
        f"A4 error: {name(records[0])} claims step 4, but its metrics end at step 3. {AGAIN}"
    ) in lines(records)


@pytest.mark.parametrize(
    ("field", "value"), [("tasks_sha256", "g"), ("temperature", 0.0), ("n", 3)]
)
def test_a5_another_evaluation_is_named(records, field, value):
    heldout = (*records[5].heldout[:2], {**records[5].heldout[2], field: value})
    records[5] = replace(records[5], heldout=heldout)
    assert lines(records)[0].startswith(f"A5 error: held-out {field} differs: ")
    assert f"{value!r} in {name(records[5])}" in lines(records)[0]


def test_a5_a_missing_gate_is_named(records):
    records[0] = replace(records[0], heldout=(gate(0), gate(4)))
    assert lines(records) == [
        f"A5 error: {name(records[0])} was evaluated at steps [0, 4], not [0, 2, 4]. "
        "Delete these trials and run them again."
    ]


def test_a5_a_running_trial_may_or_may_not_have_passed_its_next_gate(records):
    at_gate = cut(records[0], 2)
    for heldout in (at_gate.heldout, at_gate.heldout[:1]):
        records[0] = replace(at_gate, heldout=heldout)
        assert audit_trials(records).ok


def test_nothing_recorded_yet(records):
    report = audit_trials([TrialRecord(spec=r.spec, provenance={}) for r in records])
    assert report.ok
    assert report.budget.rows == ()
    assert audit_trials([]).ok


@pytest.mark.parametrize(("answered", "said"), [(10, []), (9, ["A3 warning"]), (0, ["A3 warning"])])
def test_a3_a_condition_with_fewer_verdicts_is_named(records, answered, said):
    """10 asked a step: 10 is all; 9 of 10 is under 95 %."""
    counts = {"adca/asked_count": 10.0, "adca/answered_count": 10.0}
    label = records[0].spec.condition
    for i, one in enumerate(records):
        own = counts | ({"adca/answered_count": answered} if one.spec.condition == label else {})
        records[i] = replace(one, metrics=tuple({**row, **own} for row in one.metrics))
    found = [line for line in lines(records) if "judged" in line]
    assert [line.partition(":")[0].split(".")[0] for line in found] == [s[:2] for s in said]
    assert all(f"{label} {answered / 10:.1%} of " in line for line in found)


def test_a3_one_trial_without_verdicts_is_named_in_a_condition_of_many(records):
    """One of 30 trials without a verdict leaves 96.7 % of its condition judged."""
    counts = {"adca/asked_count": 10.0, "adca/answered_count": 10.0}
    first = records[0]

    def trial(seed, **own):
        spec = replace(first.spec, seed=seed, trial_id=f"s{seed}")
        metrics = tuple({**row, **counts, **own} for row in first.metrics)
        return replace(first, spec=spec, metrics=metrics)

    many = [trial(seed) for seed in range(29)]
    assert list(judged_findings(many)) == []
    (found,) = judged_findings([*many, trial(29, **{"adca/answered_count": 0.0})])
    asked = 10 * len(first.metrics)
    assert f"Trials judged below 95%: {first.spec.condition}, seed 29: 0 of {asked}." in (
        found.message
    )
