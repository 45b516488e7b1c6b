"""A study with a proposer, from the command line: what is asked, recorded, run, and given up."""

import json
import os
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest
import yaml
from publishing import CODE, problems_in, sources_at
from test_study_fence import FREE, GOOD, sweep_text

from rltune.judge.scripted_server import ScriptedServer
from rltune.runner.proof import prove_by_keys
from rltune.spec.identity import flatten
from rltune.store.jsonl import read_jsonl
from rltune.store.lock import take_driver_lock
from rltune.study.asking import require_proposer
from rltune.study.bundle import build_study
from rltune.study.files import write_sweep
from rltune.study.load import load_study
from rltune.study.proposal import read_proposal
from rltune.study.verify import verify_study

assert sweep_text  # one without a protocol, for all tests here

KEY = "sk-test-0123456789abcdef"
STUDY = """
name: search
question: Which knobs help, one after the other?
sweeps:
  - {{name: kl, file: ../sweeps/kl.yaml}}
proposer: {proposer}
"""
MINE = "{kind: mine, function: proposals_of_the_test:propose}"
CLIP = GOOD.replace("loss.entropy_coeff", "optim.grad_clip").replace("0.01", "0.5")
CLIP = CLIP.replace("0.0,", "1.0,").replace("control: 0.0", "control: 1.0")


@pytest.fixture
def search(project, monkeypatch, capsys):
    """A study whose one sweep is finished, in its folder; launches end their trials at once."""
    from rltune.cli.entry import run

    project.finish()
    project.launched = []

    def launch(request, console):
        project.launched.append(request.loaded.spec)
        end_trials(project, request.loaded)
        return 0

    def call(*arguments):
        capsys.readouterr()
        code = run(("study", "studies/nights.yaml", *arguments))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    def use(proposer):
        project.study.write_text(STUDY.format(proposer=proposer))

    project.call, project.use = call, use
    monkeypatch.chdir(project.root)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("RLTUNE_RUNS_DIR", raising=False)
    monkeypatch.setattr("rltune.cli.study.run", launch)
    monkeypatch.setattr("rltune.cli.study.show_proof", lambda *args, **options: None)
    monkeypatch.setattr("rltune.study.fence.prove", prove_by_keys)
    return project


def end_trials(project, loaded):
    """Write a run folder whose first condition but the control is better, by six of ten tasks."""
    writer = project.kl
    writer.plan(loaded, tasks=json.loads(tasks_of(project)))
    for spec in writer.specs:
        writer.finish(spec, {0: 3, 10: 3, 20: 3 if spec.is_control else 9 - (spec.seed == 1)})


def tasks_of(project):
    return next(project.runs.glob("kl-*/tasks*.json")).read_text()


def records(project):
    return read_jsonl(project.runs / "study-search" / "proposals.jsonl").rows


@pytest.fixture
def mine(search):
    """Let a function of the user's propose these answers, one after the other."""

    def use(*answers, more=""):
        code = f"import itertools\nanswers = iter({answers!r})\n"
        code += "def propose(shown):\n    return next(answers)\n"
        (search.root / "proposals_of_the_test.py").write_text(code)
        search.use(MINE[:-1] + more + "}")

    yield use
    sys.modules.pop("proposals_of_the_test", None)
    sys.path[:] = [one for one in sys.path if one != str(search.root)]


def test_the_search_goes_on_from_what_was_shown_to_be_better(search, mine):
    mine(GOOD, CLIP, more=", sweeps: 2")
    code, out, _ = search.call()
    assert (code, [spec.name for spec in search.launched]) == (0, ["proposed-1", "proposed-2"])
    assert "proposed-1, try 1: accepted" in out
    assert out.endswith("The study is finished: 3 sweeps.\n")
    assert search.launched[1].hold["loss"]["entropy_coeff"] == 0.01
    first, last = records(search)
    assert (first["outcome"], first["source"], last["source"]) == ("accepted", "kl", "proposed-1")
    assert first["proposer"] == "proposals_of_the_test:propose"
    assert (first["answer"], len(first["prompt_sha256"])) == (GOOD, 64)


def test_a_second_command_asks_nothing_and_runs_nothing(search, mine):
    mine(GOOD, more=", sweeps: 1")
    search.call()
    code, out, _ = search.call()
    assert (code, len(search.launched), len(records(search))) == (0, 1, 1)
    assert out.endswith("The study is finished: 2 sweeps.\n")


def test_the_predictions_are_compared_with_what_came(search, mine):
    mine("no yaml", GOOD, more=", sweeps: 1")
    search.call()
    code, out, _ = search.call("--dry-run")
    assert code == 0
    assert "Predictions of the proposer" in out
    assert "right sign: 1 of 1 predictions" in out
    assert "mean absolute error: 0.517 over 1, against the control" in out  # 0.567 - 0.05
    assert "inside the 95 % interval of what was observed: 0 of 1" in out
    refused, accepted = json.loads(search.call("--json")[1])["proposals"]
    assert (refused["outcome"], accepted["outcome"]) == ("refused", "accepted")


def test_a_prediction_that_was_edited_after_its_trials_began_does_not_count(search, mine):
    mine(GOOD, more=", sweeps: 1")
    search.call()
    file = search.runs / "study-search/proposed/proposed-1/sweeps/proposed-1.yaml"
    text = file.read_text()
    file.write_text(text.replace("+0.05", "+0.567"))
    assert file.read_text() != text
    assert "mean absolute error: 0.517 over 1" in search.call("--dry-run")[1]  # as it was


def test_a_proposal_that_cannot_be_read_any_more_stops_the_study(search, mine):
    """Were it skipped, its name would be given to another sweep."""
    mine("no yaml", GOOD, CLIP, more=", sweeps: 2")
    search.call()
    log = search.runs / "study-search" / "proposals.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join([lines[0], lines[1].replace('"', "'"), lines[2]]))
    for options in ((), ("--dry-run",), ("--json",)):
        code, _, err = search.call(*options)
        assert code == 2
        assert "proposals.jsonl:2: not JSON" in err
    log.write_text("".join([*lines, lines[2][:40]]))  # one that was cut off was not yet a record
    assert search.call()[0] == 0


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"name": "proposed-1", ', "", "record 1 lacks name."),
        ('"source": "kl", ', "", "record 1 lacks source."),
        ('"proposed-2"', '"proposed-1"', "proposed-1 is accepted twice."),
    ],
)
def test_records_that_someone_edited_stop_the_study(search, mine, old, new, message):
    mine(GOOD, CLIP, more=", sweeps: 2")
    search.call()
    log = search.runs / "study-search" / "proposals.jsonl"
    assert old in log.read_text()
    log.write_text(log.read_text().replace(old, new, 1))
    code, _, err = search.call("--dry-run")
    assert code == 2
    assert f"proposals.jsonl: {message} Restore the file from a copy." in err


def test_a_proposal_is_resolved_with_the_configs_of_its_source(search, mine):
    """Sources may lie in different folders; each has its own configs beside it."""
    other = search.root / "other"
    shutil.copytree(search.root / "configs", other / "configs")
    (other / "sweeps").mkdir()
    rate = FREE.replace("name: kl\n", "name: rate\n")
    (other / "sweeps" / "rate.yaml").write_text(rate.replace("[0.0, 0.1]", "[0.0, 0.2]"))
    search.use(MINE[:-1] + ", sweeps: 2}")
    text = search.study.read_text().replace(
        "proposer:", "  - {name: rate, file: ../other/sweeps/rate.yaml}\nproposer:"
    )
    mine(GOOD + "source: kl\n", CLIP + "source: rate\n")
    search.study.write_text(text)
    assert search.call()[0] == 0
    proposed = search.runs / "study-search" / "proposed"
    links = [(proposed / f"proposed-{n}" / "configs").resolve() for n in (1, 2)]
    assert links == [search.root / "configs", other / "configs"]


def test_a_name_that_was_refused_gets_the_configs_of_the_next_source(tmp_path):
    places = [tmp_path / name / "sweeps" / "a.yaml" for name in ("with", "without", "moved")]
    for place in places:
        place.parent.mkdir(parents=True)
    for name in ("with", "moved"):
        (tmp_path / name / "configs").mkdir()
    out = tmp_path / "out" / "sweeps" / "p.yaml"
    link = tmp_path / "out" / "configs"
    for place in (places[0], places[2], places[2], places[0]):
        write_sweep(out, {}, head="", configs_of=place)
        assert link.resolve() == place.parents[1] / "configs"
    write_sweep(out, {}, head="", configs_of=places[1])
    assert not link.is_symlink()


def test_what_another_command_accepted_is_read_once_it_is_alone(search, mine, monkeypatch):
    """Two commands at once: the second one goes on from the first one's proposal."""
    mine(GOOD, more=", sweeps: 1")

    @contextmanager
    def take_after_the_other(path, *, argv):
        with monkeypatch.context() as patched:
            patched.setattr("rltune.cli.study.take_driver_lock", take_driver_lock)
            assert search.call()[0] == 0
        yield

    monkeypatch.setattr("rltune.cli.study.take_driver_lock", take_after_the_other)
    code, out, _ = search.call()
    assert (code, len(search.launched), len(records(search))) == (0, 1, 1)
    assert "proposed-1" in out


def test_a_refusal_is_shown_to_the_next_try(search, mine):
    code = "def propose(shown):\n"
    code += f"    return {GOOD!r} if shown['refused'] else 'axis: ['\n"
    mine()
    (search.root / "proposals_of_the_test.py").write_text(code)
    search.use(MINE[:-1] + ", sweeps: 1}")
    assert search.call()[0] == 0
    assert [one["outcome"] for one in records(search)] == ["refused", "accepted"]


def test_a_proposer_that_always_fails_ends_the_study_by_name(search, mine, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    mine("a", "b", "c", "d")
    code, out, _ = search.call()
    assert (code, search.launched) == (1, [])
    assert [one["outcome"] for one in records(search)] == ["refused"] * 3
    text = " ".join(out.split())
    assert text.count("It must be a mapping of keys.") == 3  # wrapped, not cut
    assert "The proposer gave no sweep that may run. The same command asks again." in text
    assert out.endswith("The study is finished: 1 sweep.\n")


def test_a_function_that_raises_is_a_record(search, mine):
    mine(more=", tries: 1")
    assert search.call()[0] == 1
    (record,) = records(search)
    assert record["outcome"] == "no answer"
    assert record["problems"] == ["proposals_of_the_test:propose raised StopIteration:"]


def test_a_mapping_is_a_proposal_too(search, mine):
    mine(yaml.safe_load(GOOD), more=", sweeps: 1")
    assert search.call()[0] == 0
    assert [one["outcome"] for one in records(search)] == ["accepted"]


def test_a_function_that_is_not_there_is_refused_before_anything_starts(search):
    search.use("{kind: mine, function: nowhere_at_all:propose}")
    code, _, err = search.call()
    assert code == 2
    assert "proposer.function: 'nowhere_at_all:propose': there is no module" in err


def test_no_custom_code_refuses_it(search, mine):
    mine(GOOD)
    code, _, err = search.call("--no-custom-code")
    assert (code, records(search)) == (2, ())
    assert "is custom code, which --no-custom-code refuses." in err


def test_no_proposal_is_asked_for_beyond_a_limit(search, mine):
    mine(GOOD)
    text = search.study.read_text()
    search.study.write_text(text + "budget: {tokens: 24000}\n")
    code, out, _ = search.call()
    assert (code, records(search)) == (0, ())
    assert "finished" in out


def test_the_shipped_example_proposes_what_may_run(monkeypatch):
    """The knobs are those of the sweep that its study begins with."""
    from examples.my_proposer import propose

    root = Path(__file__).parents[2]
    monkeypatch.chdir(root)
    study = load_study(root / "examples" / "my_proposer.yaml")
    require_proposer(study, root, no_custom_code=False)
    knobs = flatten(study.originals["kl"].control.config)
    first = read_proposal(yaml.safe_dump(propose({"sweeps": [], "knobs": knobs})))
    assert (first.axis.key, first.axis.control) == ("optim.lr", knobs["optim.lr"])
    moved = {"sweeps": [{"axis": "optim.lr"}], "knobs": knobs}
    assert read_proposal(yaml.safe_dump(propose(moved))).axis.key == "loss.clip_high"


FORMS = {
    "{kind: mine}": "proposer.function: 'function' is missing: kind mine calls one.",
    "{kind: llm, function: a:b}": "'function' does not belong to kind llm.",
    "{kind: mine, function: a:b, llm: {}}": "'llm' does not belong to kind mine.",
    "{kind: oracle}": "'oracle' is not",
    "{kind: llm, tries: 0}": "0 is out of range.",
}


@pytest.mark.parametrize(("proposer", "message"), FORMS.items())
def test_what_is_wrong_with_a_proposer_is_said(search, proposer, message):
    search.use(proposer)
    code, _, err = search.call()
    assert code == 2
    assert message in err


@pytest.fixture
def served(search, monkeypatch):
    """Serve these answers, and let the study ask for them."""
    monkeypatch.setenv("PROPOSER_KEY", KEY)
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    servers = []

    def serve(*replies, faults=(), more=""):
        server = ScriptedServer(replies=replies, faults=faults, key=KEY)
        thread = Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        servers.append((server, thread))
        service = f"base_url: '{server.url}', api_key_env: PROPOSER_KEY, model: m, max_retries: 0"
        search.use(f"{{kind: llm, sweeps: 1, llm: {{{service}{more}}}}}")
        return server

    yield serve
    for server, thread in servers:
        server.stopping.set()
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_language_model_proposes(search, served):
    served("axis: [", f"```yaml\n{GOOD}```")
    code, _, _ = search.call()
    assert (code, [spec.name for spec in search.launched]) == (0, ["proposed-1"])
    refused, accepted = records(search)
    assert refused["problems"][0].startswith("proposal:1: is not YAML")
    assert (accepted["proposer"], accepted["calls"]) == ("llm m", 1)
    assert accepted["tokens"] > 100
    assert KEY not in (search.runs / "study-search" / "proposals.jsonl").read_text()


def test_the_second_question_quotes_the_refusal(search, served):
    server = served("axis: [", GOOD)
    search.call()
    (_, first), (_, second) = server.asked
    assert json.loads(first["content"])["refused"] == []
    (told,) = json.loads(second["content"])["refused"]
    assert told["answer"] == "axis: ["
    assert "is not YAML" in told["because"]


def test_a_service_that_fails_is_a_record(search, served):
    served(GOOD, faults=["500", "cut", "garbage"])
    code, out, _ = search.call()
    assert (code, search.launched) == (1, [])
    (server_error,), (cut,), (garbage,) = (one["problems"] for one in records(search))
    assert server_error.startswith("after 1 try: it answered HTTP 500")
    assert cut == "the answer was cut off after 1024 tokens"
    assert garbage.startswith("after 1 try: it answered HTTP 200 without a chat completion")
    assert "The proposer gave no sweep that may run." in out


def test_the_limit_of_calls_is_that_of_the_whole_study(search, served):
    served("axis: [", more=", max_calls: 2")
    search.call()
    assert [one["outcome"] for one in records(search)] == ["refused", "refused", "no answer"]
    search.call()
    assert records(search)[-1]["problems"] == ["2 calls are used up; raise proposer.llm.max_calls"]


def test_a_call_counts_even_if_the_command_ends_before_its_answer_is_judged(
    search, served, monkeypatch
):
    served(GOOD, more=", max_calls: 1")

    def stop(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("rltune.study.asking.review", stop)
        search.call()
    assert records(search) == ()
    log = search.runs / "study-search" / "proposer_calls.jsonl"
    assert [one["calls"] for one in read_jsonl(log).rows] == [1]
    assert KEY not in log.read_text()
    search.call()
    assert records(search)[-1]["problems"] == ["1 calls are used up; raise proposer.llm.max_calls"]


def test_without_a_key_nothing_starts(search, served, monkeypatch):
    served(GOOD)
    monkeypatch.delenv("PROPOSER_KEY")
    code, _, err = search.call()
    assert (code, records(search)) == (2, ())
    assert "proposer.llm.api_key_env: the environment variable 'PROPOSER_KEY' is not set." in err


@pytest.mark.slow
def test_a_bundle_holds_what_was_proposed_and_an_edited_proposal_is_caught(search, mine):
    mine("no yaml", GOOD, more=", sweeps: 1")
    search.call()
    root = search.root / "bundle"
    root.mkdir()
    build_study(
        load_study(search.study), search.runs, root, CODE, place="a.zip", has_checkpoints=False
    )
    assert "1 accepted, 1 refused." in (root / "index.md").read_text()

    def problems():
        return problems_in(verify_study(root, sources_at=sources_at))

    assert problems() == []
    path = root / "runs" / "study-search" / "proposals.jsonl"
    text = path.read_text()
    for old, new, found in (
        ("+0.05", "+0.5", "proposed/proposed-1/sweeps/proposed-1.yaml: axis: {"),
        ('"outcome": "refused"', '"outcome": "accepted"', "proposals.jsonl:1: accepted with "),
        ('"source": "kl"', '"source": "lk"', "'lk', which is not a sweep of the study"),
    ):
        assert old in text
        path.write_text(text.replace(old, new))
        assert any(found in one for one in problems()), (old, problems())
