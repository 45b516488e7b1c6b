import errno
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from run_folders import write_sweep

import rltune.cli.entry as entry
from rltune.cli.app import COMMANDS, LINEAGE
from rltune.errors import InputError
from rltune.spec.load import load_sweep

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "words",
    [(one.name,) for one in COMMANDS] + [("lineage", one.name) for one in LINEAGE],
)
def test_help_has_an_example(rltune, words):
    result = rltune(*words, "--help")
    assert result.code == 0
    assert f"\n  Example:\n    rltune {' '.join(words)}" in result.out


@pytest.mark.parametrize(("words", "entries"), [((), COMMANDS), (("lineage",), LINEAGE)])
def test_help_lists_every_command_with_its_whole_line(rltune, words, entries):
    listed = rltune(*words, "--help").out.partition("Commands:\n")[2].splitlines()
    lines = {line.split()[0]: " ".join(line.split()[1:]) for line in listed}
    assert {one.name: one.help for one in entries} == {
        name: text for name, text in lines.items() if name != "lineage"
    }


def test_without_a_command_the_help_is_shown(rltune):
    result = rltune()
    assert (result.code, result.err) == (2, rltune("--help").out)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("foo",), "error: No such command 'foo'. See `rltune --help`.\n"),
        (
            ("lineage", "shwo"),
            "error: No such command 'shwo'. Did you mean 'show'? See `rltune lineage --help`.\n",
        ),
        (("check", "--bar"), "error: No such option: --bar. See `rltune check --help`.\n"),
        (("plan",), "error: Missing argument 'FILE'. See `rltune plan --help`.\n"),
        (
            ("check",),
            "error: check: no sweep file was given. Example: `rltune check sweeps/kl.yaml`.\n",
        ),
        (("check", "no.yaml"), "error: no.yaml: There is no such sweep file.\n"),
        (
            ("status",),
            "error: runs: there is no run folder here. Give one, or --runs-dir, or start a sweep "
            "with `rltune sweep FILE`.\n",
        ),
        (("audit", "nowhere"), "error: nowhere: there is no such folder. Run folders are "
         "<runs-dir>/<sweep>-<hash8>.\n"),
        (
            ("warmstart", "chess", "--out", "w"),
            "error: ENV: 'chess' is not an environment. "
            "Choose one of sokoban, frozen_lake, multihop_qa, arithmetic, or a sweep file.\n",
        ),
    ],
)  # fmt: skip
def test_refused_input_is_one_whole_line(rltune, arguments, line):
    result = rltune(*arguments)
    assert (result.code, result.out, result.err) == (2, "", line)


def test_every_problem_has_its_line(rltune, tmp_path):
    write_sweep(tmp_path)
    given = ("--set", "loss.entropy_coeff=3", "--set", "x=1")
    result = rltune("plan", "sweeps/kl.yaml", "--profile", "lap", *given)
    assert result.code == 2
    assert result.err.splitlines() == [
        "error: --profile: 'lap' is not a profile of this sweep. Choose one of laptop. "
        "Did you mean 'laptop'?",
        "error: --set loss.entropy_coeff=3: 'loss.entropy_coeff' is held by this sweep. "
        "Edit the sweep file instead.",
        "error: --set x=1: 'x' is not a config key.",
    ]


def test_seeds_that_are_no_numbers(rltune, tmp_path):
    write_sweep(tmp_path)
    result = rltune("plan", "sweeps/kl.yaml", "--seeds", "0,a,-1")
    assert result.code == 2
    assert result.err.splitlines() == [
        "error: --seeds: 'a' is not a seed. Give whole numbers, such as 0,1,2.",
        "error: --seeds: '-1' is not a seed. Give whole numbers, such as 0,1,2.",
    ]


def test_a_bug_is_one_line_and_its_traceback_a_file(rltune, tmp_path, monkeypatch):
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("seven\ntimes")

    monkeypatch.setattr("rltune.cli.plan.load_sweep", broken)
    (tmp_path / "runs").mkdir()
    result = rltune("plan", "sweeps/kl.yaml")
    files = list((tmp_path / "runs").glob("rltune-bug-*.txt"))
    assert result.code == 1
    assert result.err == (
        "error: ZeroDivisionError: seven times. This is a bug in rltune; "
        f"traceback in {files[0].relative_to(tmp_path)}\n"
    )
    assert "Traceback (most recent call last)" in files[0].read_text()


def test_traceback_goes_to_the_temporary_folder_without_runs(rltune, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert entry._write_traceback(ValueError("x")).parent == tmp_path


def test_interrupt_is_exit_code_3(rltune, monkeypatch):
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rltune.cli.check.load_sweep", stopped)
    result = rltune("check", "sweeps/kl.yaml")
    assert (result.code, result.err) == (3, "error: interrupted; the same command goes on.\n")


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG])
def test_what_the_system_refuses_is_no_bug(rltune, monkeypatch, number):
    def refused(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), "sweeps/kl.yaml")

    monkeypatch.setattr("rltune.cli.check.load_sweep", refused)
    result = rltune("check", "sweeps/kl.yaml")
    assert (result.code, result.err) == (1, f"error: sweeps/kl.yaml: {os.strerror(number)}.\n")


def test_a_message_is_one_line_and_of_a_length_whatever_it_quotes(rltune, monkeypatch):
    def refused(*_: object, **__: object) -> None:
        raise InputError(["x: 'a\x0bb\u2028c' is no y.", "z" * 6000])

    monkeypatch.setattr("rltune.cli.check.load_sweep", refused)
    first, second = rltune("check", "sweeps/kl.yaml").err.splitlines()
    assert first == "error: x: 'aU+000BbU+2028c' is no y."
    assert second == f"error: {'z' * 5000}… (5000 of 6000 characters)"


def started(*command: str, folder: Path, given: str = "") -> subprocess.CompletedProcess[str]:
    """Return what came of a process in a folder, with this code."""
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'envs'}"},
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(("given", "code"), [("--version", 0), ("chekc", 2)])
def test_a_job_without_standard_streams_runs(tmp_path, given, code):
    """A daemon may start it so; the next file that is opened must not become its output."""
    python = f"{sys.executable} -c 'from rltune.cli import main; main()' {given}"
    done = started("bash", "-c", f"({python} <&- >&- 2>&-); echo code $?", folder=tmp_path)
    assert (done.stdout, done.stderr) == (f"code {code}\n", "")


MODULES = """
import sys
from rltune.cli.entry import run
for line in sys.stdin:
    code = run(line.split())
    heavy = sorted({"torch", "ray", "transformers", "wandb"} & set(sys.modules))
    if line == "--help\\n":
        heavy += sorted({"rltune.cli.check", "rltune.cli.sweep"} & set(sys.modules))
    print("HEAVY", *line.split(), code, heavy)
"""
SWEEP = "sweeps/kl.yaml"
LIGHT = {  # and its exit code
    "--help": 0,  # the list of commands imports none of them
    "serve-retriever --corpus no": 2,
    f"check {SWEEP}": 0,
    f"plan {SWEEP}": 0,
    f"sweep {SWEEP} --dry-run": 0,
    "init new": 0,
}


def test_light_commands_import_neither_torch_nor_ray(tmp_path):
    write_sweep(tmp_path)
    done = started(sys.executable, "-c", MODULES, folder=tmp_path, given="\n".join(LIGHT))
    said = [line for line in done.stdout.splitlines() if line.startswith("HEAVY")]
    assert said == [f"HEAVY {command} {code} []" for command, code in LIGHT.items()], done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("flags", ["", " --json"])
def test_head_is_silent(tmp_path, flags):
    write_sweep(tmp_path)
    command = f"{sys.executable} -c 'from rltune.cli import main; main()' check sweeps/kl.yaml"
    script = f"({command}{flags}; echo code $? >&2) | head -n 1"
    done = started("bash", "-o", "pipefail", "-c", script, folder=tmp_path)
    assert done.stderr == "code 0\n"
    assert len(done.stdout.splitlines()) == 1


def test_printing_goes_on_silently_when_the_reader_is_gone(tmp_path):
    """A sweep piped into `head` must reach its end."""
    code = (
        "import select, sys; from rltune.cli.console import make_console; console = make_console();"
        "poll = select.poll(); poll.register(1, 0);"  # of an end without a reader
        "console.print('read'); poll.poll(); [console.print('not read') for _ in range(3)];"
        "print('went on', file=sys.stderr)"
    )
    done = started("bash", "-c", f'{sys.executable} -c "{code}" | head -n 1', folder=tmp_path)
    assert done.stderr == "went on\n"


COLOURS = """
import os
from rltune.cli.entry import run
for variable in ("NO_COLOR", "CI"):
    os.environ.pop("NO_COLOR", None)
    os.environ[variable] = "1"
    run(["check", "sweeps/kl.yaml"])
"""


@pytest.mark.slow
def test_no_escape_codes_off_a_terminal_or_without_colour(tmp_path):
    write_sweep(tmp_path)
    done = started(sys.executable, "-c", COLOURS, folder=tmp_path)
    assert "\x1b" not in done.stdout
    assert done.stdout.count("Comparable") == 2


BAD_RUNS = {  # --runs-dir -> why nothing can be made in it; root may write to anything else
    "file": "{here}/file is a file",
    "file/runs": "{here}/file is a file",
    "/proc/x": "nothing can be written to /proc (No such file or directory)",
}


@pytest.mark.parametrize("runs_dir", BAD_RUNS)
@pytest.mark.parametrize("options", [(), ("--dry-run",)])
def test_a_runs_dir_that_holds_nothing_is_refused(rltune, monkeypatch, runs_dir, options):
    here = Path.cwd()
    Path("file").write_text("", encoding="utf-8")
    sweep = str(write_sweep(here).relative_to(here))
    before = sorted(here.rglob("*"))
    why = BAD_RUNS[runs_dir].format(here=here)
    said = f"{runs_dir!r} cannot hold run folders: {why}. Give a writable folder.\n"
    given = rltune("sweep", sweep, "--runs-dir", runs_dir, *options)
    assert (given.code, given.out, given.err) == (2, "", f"error: --runs-dir: {said}")
    due = rltune("next", sweep, "--runs-dir", runs_dir)
    assert (due.code, due.out, due.err) == (2, "", f"error: --runs-dir: {said}")
    monkeypatch.setenv("RLTUNE_RUNS_DIR", runs_dir)
    found = rltune("sweep", sweep, *options)
    assert (found.code, found.err) == (2, f"error: --runs-dir (from RLTUNE_RUNS_DIR): {said}")
    assert sorted(here.rglob("*")) == before


def test_a_run_folder_that_is_a_file_is_refused(rltune):
    sweep = write_sweep(Path.cwd())
    name = load_sweep(sweep).run_name
    Path("runs").mkdir()
    Path("runs", name).write_text("", encoding="utf-8")
    result = rltune("sweep", str(sweep))
    assert result.code == 2
    assert f"'runs' cannot hold run folders: {Path.cwd()}/runs/{name} is a file." in result.err
