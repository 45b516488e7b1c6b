"""Faults around a trial: its numbers, the clock, the code, servers that hang."""

import shutil
import signal
import socket
import time

from finding import Finding, interrupt, steps_again
from sandbox import ROOT, Sandbox, steps_of

from rltune.store.provenance import read_provenance


def not_a_number(sandbox: Sandbox) -> Finding:
    """The loss or the weights are not finite."""
    ended = sandbox.run_sweep()
    again = sandbox.run_sweep()
    status = sandbox.run_command("status", str(sandbox.run.path))
    kept = [any(trial.checkpoints.glob("step-*")) for trial in sandbox.trials]
    return Finding(
        "recorded as diverged, the last good checkpoint kept; not run again",
        "what followed the last checkpoint",
        {
            "exit code 1": ended.code == 1,
            "status says diverged": status.says("diverged"),
            "a checkpoint is kept": all(kept),
            "not run again": again.says("Nothing was left to run"),
        },
        is_whole=False,
        is_equal=False,
    )


def clock_jump(sandbox: Sandbox) -> Finding:
    """The wall clock is set back a day, then forward two, while trials run."""
    shim = sandbox.folder / "clock"
    shim.mkdir()
    (shim / "sitecustomize.py").write_text(_CLOCK.format(offset=str(shim / "offset")))
    sandbox.environment["PYTHONPATH"] = str(shim)
    process = sandbox.launch()
    sandbox.wait(process, sandbox.second_trains)
    (shim / "offset").write_text("-86400")
    sandbox.wait(process, lambda: steps_of(sandbox.trials[1]) > 20)
    (shim / "offset").write_text("86400")
    ended = sandbox.end(process)
    result = sandbox.trials[1].read_done()
    return Finding(
        "nothing depends on it: durations come from the monotonic clock",
        checks={
            "ends well": ended.code == 0,
            "durations are sane": result is not None and 0 < result.total_s < 3600,
        },
    )


_CLOCK = """
import time
_now = time.time
def _time():
    try:
        return _now() + float(open({offset!r}).read())
    except (OSError, ValueError):
        return _now()
time.time = _time
"""


def changed_code(sandbox: Sandbox) -> Finding:
    """The code is edited between two launches of one sweep."""
    code = sandbox.folder / "code"
    for package in ("rltune", "envs/rltune_envs"):
        source = ROOT / package
        shutil.copytree(source, code / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "configs", code / "configs")
    sandbox.environment["PYTHONPATH"] = str(code)
    interrupt(sandbox)
    before = steps_of(sandbox.trials[1])
    with (code / "rltune" / "gate.py").open("a") as file:
        file.write("\n# edited\n")
    again = sandbox.run_sweep()
    seen = {read_provenance(trial)["source_sha256"] for trial in sandbox.trials}
    return Finding(
        "recorded for each attempt; the audit fails (A1) and names the trials",
        steps_again(before, sandbox),
        {"recorded": len(seen) == 2, "the audit fails": again.code == 1 and again.says("A1")},
    )


def hanging_judge(sandbox: Sandbox) -> Finding:
    """A language-model judge that takes calls and never answers."""
    with _SilentServer() as port:
        sandbox.environment["FAULTS_API_KEY"] = "sk-not-a-key"
        sandbox.write_sweep(
            {
                "advantage": {"kind": "grpo"},
                "attribution.kind": "adca",
                "attribution.judge": "llm",
                "attribution.llm.base_url": f"http://127.0.0.1:{port}/v1",
                "attribution.llm.api_key_env": "FAULTS_API_KEY",
                "attribution.llm.timeout_s": 1.0,
                "attribution.llm.max_retries": 0,
            }
        )
        ended = sandbox.run_sweep()
    return Finding(
        "each call ends at its timeout; a trial with nothing judged in 3 steps fails by name",
        "what followed the last checkpoint",
        {
            "exit code 1": ended.code == 1,
            "says that nothing was judged": ended.says("judge"),
            "no traceback": "Traceback" not in ended.text,
        },
        is_whole=False,
        is_equal=False,
    )


def hanging_retriever(sandbox: Sandbox) -> Finding:
    """A retriever that stands still for a minute, its port open."""
    server = sandbox.start("serve-retriever", "--port", "0")
    assert server.stdout is not None
    line = next(line for line in server.stdout if "http://" in line)
    sandbox.write_sweep(
        {"env.retriever": next(word for word in line.split() if word.startswith("http://"))},
        base="multihop_qa",
    )
    try:
        process = sandbox.launch()
        sandbox.wait(process, sandbox.second_trains)
        server.send_signal(signal.SIGSTOP)
        time.sleep(60)  # longer than the four tries of ten seconds
        server.send_signal(signal.SIGCONT)
        ended = sandbox.end(process)
    finally:
        server.send_signal(signal.SIGCONT)
        server.terminate()
        server.wait()
    log = sandbox.trials[1].log.read_text()
    return Finding(
        "a search that got no answer in its four tries is a fault of its episode, which no "
        "update sees; the trial goes on",
        "the episodes with a fault",
        {"ends well": ended.code == 0, "the log counts them": "fault" in log},
        is_equal=False,
    )


class _SilentServer:
    """A port that takes connections and says nothing."""

    def __enter__(self) -> int:
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=512)
        return int(self._socket.getsockname()[1])

    def __exit__(self, *error: object) -> None:
        self._socket.close()
