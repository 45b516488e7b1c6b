"""Serve a tiny Qwen3 by skyrl, run a command beside it, and end the server.

    python run_beside.py PYTHON COMMAND...

PYTHON is the interpreter of an environment with skyrl 0.4.0; this one has rltune. The command finds
the server by TINKER_BASE_URL, and the folder of its base model by RLTUNE_SERVICE_MODEL.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from rltune.policy.export import Sampling, write_model
from rltune.policy.load import assemble
from rltune.policy.tiny import tiny_tokenizer

SLOTS = 48  # adapters and snapshots of all tests; it frees none
ROWS = 4  # of one pass, as of a mini-batch: another number of rows is compiled anew


def write_base(folder: Path) -> None:
    """Write the model: skyrl reads Llama and Qwen3, and the shipped policies are Qwen2."""
    tokenizer = tiny_tokenizer("sokoban")
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        initializer_range=0.1,  # else all tokens are nearly as likely, whatever an adapter does
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        pad_token_id=tokenizer.pad_token_id,
    )
    policy = assemble(Qwen3ForCausalLM(config), tokenizer, template="plain", is_bare=True)
    folder.mkdir()
    write_model(policy, folder, Sampling(1.0, 8))


def start(python: str, base: Path, home: Path, port: int) -> subprocess.Popen:
    """Start the server in a process group of its own; its output goes to a file."""
    settings = {
        "max_lora_adapters": SLOTS,
        "max_lora_rank": 8,
        "sample_max_num_sequences": 2 * ROWS,
        "train_micro_batch_size": ROWS,
    }
    command = [python, str(Path(__file__).with_name("server.py")), "--base-model", str(base)]
    command += ["--backend", "jax", "--backend-config", json.dumps(settings), "--port", str(port)]
    command += ["--checkpoints-base", str(home / "states")]
    command += ["--database-url", f"sqlite:///{home / 'tinker.db'}"]
    one_thread = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    environ = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": one_thread, "HF_HUB_OFFLINE": "1"}
    with (home / "log").open("w") as log:
        return subprocess.Popen(
            command,
            env=os.environ | environ,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def wait_for(server: subprocess.Popen, url: str) -> None:
    """Wait until it answers; fail when it ends."""
    while True:
        if server.poll() is not None:
            raise SystemExit(f"the server ended with {server.returncode}")
        try:
            httpx.get(f"{url}/api/v1/healthz", timeout=1).raise_for_status()
        except httpx.HTTPError:
            time.sleep(0.5)
        else:
            return


def main(python: str, *command: str) -> int:
    """Run the command; return its exit code."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        home, code = Path(name), 1
        write_base(home / "base")
        server = start(python, home / "base", home, port)
        try:
            wait_for(server, url)
            environ = {"TINKER_BASE_URL": url, "TINKER_API_KEY": "tml-local"}
            environ["RLTUNE_SERVICE_MODEL"] = str(home / "base")
            code = subprocess.run(command, env=os.environ | environ).returncode
        finally:
            with contextlib.suppress(ProcessLookupError):  # it ended by itself
                os.killpg(server.pid, signal.SIGKILL)
            server.wait()
            if code:  # also of a server that did not start
                print((home / "log").read_text()[-4000:], file=sys.stderr)
        return code


def stop(*_: object) -> None:
    """End as `timeout` asks; it asks twice, and the server must still be ended."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(124)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, stop)
    sys.exit(main(*sys.argv[1:]))
