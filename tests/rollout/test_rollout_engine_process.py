"""An engine in a process of its own: what crosses over, and how each side's end ends the other."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import torch
from engine_makers import END, NoModel, lying_as_in_a_file, process_engine, scripted_engine
from patience import HANG_S, wait_until
from process_engines import STUCK, Reader, Stuck, digest, refusing
from torch._inductor.runtime.cache_dir_utils import default_cache_dir

from rltune.errors import EngineDiedError, InputError
from rltune.policy.lora import add_adapter
from rltune.policy.serve import ServedPolicy
from rltune.rollout.engine import Request, SamplingParams
from rltune.rollout.engine_environment import engine_environment, link_kernels
from rltune.spec.schema.trial import LoraConfig

ASKED = [Request(n, [4, 5 + n], n) for n in range(4)]
PARAMS = SamplingParams(temperature=1.0, max_tokens=8, max_context=200)
LORA = LoraConfig(rank=2)


def is_gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def adapted(small_policy):
    policy = lying_as_in_a_file(small_policy())
    add_adapter(policy.model, LORA, seed=0)
    return policy


@pytest.fixture
def policy(small_policy):
    return adapted(small_policy)


@pytest.fixture(scope="module")
def reader(small_policy):
    """Return a reader of the policy that `policy` makes, too; for tests that leave it alive."""
    engine = process_engine(Reader, ServedPolicy(adapted(small_policy), LORA))
    process, folder = engine._process, engine.folder
    yield engine
    engine.close()
    assert process.returncode == 0  # an orderly end
    assert not folder.exists()


def digests(served, dtype):
    return {name: digest(tensor.to(dtype)) for name, tensor in served.weights()}


def test_weights_arrive_bit_by_bit_and_lie_as_the_trials_do(reader, policy):
    want = digests(ServedPolicy(policy, LORA), torch.float32)
    assert len(want) > 20
    assert {place for _, _, place, _ in want.values()} == {56}
    assert reader.generate([], PARAMS) == want


@pytest.mark.slow
def test_changed_weights_arrive_in_the_format_of_the_engine(policy):
    served = ServedPolicy(policy, LORA)
    engine = process_engine(Reader, served, dtype=torch.bfloat16)
    want = digests(served, torch.bfloat16)
    assert engine.generate([], PARAMS) == want
    with torch.no_grad():
        policy.model.get_input_embeddings().weight.add_(1.0)
    engine.release()
    got = engine.generate([], PARAMS)
    engine.close()
    assert got == digests(served, torch.bfloat16) != want


def test_the_trial_writes_what_the_engine_wants_in_files(reader, policy, tmp_path):
    reader.sync()
    folder = Path(reader.generate([], "environment")["TMPDIR"]) / "read"
    ServedPolicy(policy, LORA).write_adapter(tmp_path)
    ServedPolicy(policy, LORA).write_config(tmp_path, max_context=99)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert len(names) == 3
    assert {(folder / name).read_bytes() == (tmp_path / name).read_bytes() for name in names} == {
        True
    }


def test_the_engine_has_the_threads_of_the_trial_and_no_gpu(reader):
    seen = reader.generate([], "environment")
    assert seen["CUDA_VISIBLE_DEVICES"] == ""
    assert seen["threads"] == torch.get_num_threads()


def test_compiled_kernels_are_kept_for_the_next_engine(reader, monkeypatch):
    """vLLM compiles a small function in seconds; the folder of the process ends with it."""
    seen = reader.generate([], "environment")
    kept = seen["TORCHINDUCTOR_CACHE_DIR"]
    assert not kept.startswith(seen["TMPDIR"])
    headers = Path(seen["TMPDIR"], Path(default_cache_dir()).name)  # torch asks no variable for it
    assert headers.resolve() == Path(kept).resolve()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/somewhere")
    environment = engine_environment(Path("/folder"), gpu="", threads=1)
    assert environment["TORCHINDUCTOR_CACHE_DIR"] == "/somewhere"


def test_an_engine_starts_where_no_kernels_can_be_kept(tmp_path, monkeypatch):
    taken = tmp_path / "file"
    taken.touch()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(taken / "kernels"))
    link_kernels(tmp_path)
    assert list(tmp_path.iterdir()) == [taken]


def test_errors_come_back_and_the_engine_goes_on(reader):
    before = reader.pid
    with pytest.raises(ValueError, match="a value of 7 is too large"):
        reader.generate([], "value")
    with pytest.raises(RuntimeError, match=r"in the engine's process:[\s\S]*no such thing"):
        reader.generate([], "unknown")
    assert reader.generate([], PARAMS)
    assert reader.pid == before


@pytest.mark.slow
def test_an_engine_that_cannot_start_says_why_and_leaves_no_process():
    before = psutil.Process().children()
    with pytest.raises(InputError) as refused:
        process_engine(refusing, NoModel())
    assert refused.value.problems[0].where == "rollout.engine"
    assert psutil.Process().children() == before


@pytest.mark.slow
def test_a_trial_that_cannot_answer_has_its_own_error(policy, monkeypatch):
    served = ServedPolicy(policy, LORA)
    engine = process_engine(Reader, served)
    pid = engine.pid

    def full(folder):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(served, "write_adapter", full)
    with pytest.raises(OSError, match="No space left"):
        engine.sync()
    assert is_gone(pid)


def test_a_killed_engine_is_an_error_of_the_trial_with_its_last_words():
    """Until then it gave the answers of its script.

    4 + 5 + 2 = 11; 2 + (121 + 5 p) % 14 = 11, 2: the sequence for p = 0, 1, ...
    """
    engine = process_engine(scripted_engine, NoModel())
    (completion,) = engine.generate([Request(0, [4, 5], 0)], PARAMS)
    assert completion.token_ids == (11, 2, 7, 12, 3)
    assert completion.token_ids[-1] == END
    assert json.dumps(completion.logprobs) == "[-1.0, -1.0, -1.0, -1.0, -1.0]"
    folder = engine.folder
    (folder / "stderr").write_text("out of cheese\n")
    os.kill(engine.pid, signal.SIGKILL)
    with pytest.raises(EngineDiedError, match="ended by signal 9") as died:
        engine.generate(ASKED, PARAMS)
    assert died.value.__notes__ == ["Its last words:\nout of cheese"]
    assert not folder.exists()


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, STUCK], ids=["an error", "stuck"])
def test_an_engine_that_does_not_end_well_is_ended(monkeypatch, rank):
    monkeypatch.setattr("rltune.rollout.engine_process._END_S", 0.5)
    model = NoModel()
    model.adapter_rank = rank
    engine = process_engine(Stuck, model)
    pid, folder = engine.pid, engine.folder
    engine.close()
    assert is_gone(pid)
    assert not folder.exists()


@pytest.mark.slow
def test_a_module_of_the_current_folder_is_not_taken_for_a_library(tmp_path, monkeypatch):
    (tmp_path / "safetensors.py").write_text("raise SystemError('not this one')\n")
    (tmp_path / "torch.py").write_text("raise SystemError('not this one')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    process_engine(scripted_engine, NoModel()).close()


TRIAL = """
import sys, time
from engine_makers import NoModel, process_engine, scripted_engine
from rltune.rollout.engine import Request, SamplingParams
engine = process_engine(scripted_engine, NoModel())
print(engine.pid, engine.folder, flush=True)
{then}
"""
BUSY = (
    "engine.generate([Request(0, range(4, 3_000_000), 0)] * 10, SamplingParams(1.0, 8, 9_000_000))"
)


@pytest.mark.slow
@pytest.mark.parametrize("then", ["time.sleep(600)", BUSY], ids=["idle", "busy"])
def test_an_engine_dies_with_its_trial(then, tmp_path):
    trial = subprocess.Popen(
        [sys.executable, "-c", TRIAL.format(then=then)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    pid, folder = trial.stdout.readline().split()
    assert Path(folder).is_dir()
    trial.kill()
    trial.wait()
    trial.stdout.close()
    wait_until(lambda: is_gone(int(pid)))
    assert not Path(folder).exists()


@pytest.mark.slow
def test_a_trial_that_forgets_its_engine_takes_it_along(tmp_path):
    """An exception nobody caught: the interpreter ends in its own way."""
    trial = subprocess.run(
        [sys.executable, "-c", TRIAL.format(then="sys.exit('over')")],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    assert trial.stderr.strip() == "over"
    pid, folder = trial.stdout.split()
    wait_until(lambda: is_gone(int(pid)))
    assert not Path(folder).exists()
