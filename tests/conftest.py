"""Small policies that several packages' tests share. Torch is imported only where it is used."""

import gc
import logging
import os
import signal
import ssl
import subprocess
import sys
from functools import cache

# What starts in the background ignores Ctrl-C, and under nohup a hang-up; so would the programs of
# tests, were the signals not caught here.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)

# Two torch processes with two threads each spin against each other, many times slower than one.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, settings

# pytest's capture of logs is left out: nobody reads them, and it costs time in every test. Without
# any handler Python would print warnings.
logging.getLogger().addHandler(logging.NullHandler())

gc.disable()  # until all tests are collected: imports make no garbage, but a million objects

# No test depends on the speed of the machine.
settings.register_profile("any", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any")


@pytest.fixture(autouse=True, scope="session")
def _nobody_pulls_the_plug():
    """Make fsync cost nothing: what a test wrote need not outlive the machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def _the_code_stands_still():
    """Read the packages' files and ask git once: no test of this process changes them."""
    from rltune.runner import provenance

    with pytest.MonkeyPatch.context() as patch:
        for name in ("source_digest", "_git"):
            patch.setattr(provenance, name, cache(getattr(provenance, name)))
        yield


@pytest.fixture(autouse=True, scope="session")
def _certificates_are_read_once():
    """Share a TLS context: each client of httpx reads all certificates, for 30 ms of CPU time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", cache(ssl.create_default_context))
        yield


def make_small_policy(
    *, seed: int = 0, hidden_size: int = 32, layers: int = 2, dtype: str = "float32"
):
    """Make an untrained policy; `dtype` as in the config, or float64 weights for exact tests."""
    import torch
    from exact_norms import double

    from rltune.policy.load import assemble
    from rltune.policy.precision import set_compute_dtype
    from rltune.policy.tiny import tiny_model, tiny_tokenizer

    tokenizer = tiny_tokenizer("sokoban")
    torch.manual_seed(seed)
    model = tiny_model("sokoban", hidden_size=hidden_size, layers=layers, heads=2)
    # Initial weights give all tokens nearly the same probability; larger ones tell them apart.
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(4)
    model.eval()
    if dtype == "float64":
        double(model)
    else:
        set_compute_dtype(model, dtype)
    return assemble(model, tokenizer, template="plain", is_bare=True)


@pytest.fixture(scope="session")
def small_policy():
    """Return a maker of untrained policies over the tiny tokenizer, fixed by their seed."""
    return make_small_policy


@pytest.fixture
def undrawn(monkeypatch):
    """Make pages without their figures, which take longer to draw than all the rest to make."""
    from rltune.report.html import drawing, page

    for module in (drawing, page):
        monkeypatch.setattr(module, "has_matplotlib", lambda: False)


@pytest.fixture
def impatient(monkeypatch):
    """Do not wait for the driver of a sweep to go: it is there for as long as the test."""
    from rltune.store.lock import take_driver_lock

    monkeypatch.setitem(take_driver_lock.__kwdefaults__, "patience_s", 0.0)


@pytest.fixture
def probe_here(monkeypatch):
    """Compare gradients in this process: to start another takes longer than to compare them."""
    from rltune.trainer.probe.run import main

    def run(command, **_):
        main(*command[-2:])
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(subprocess, "run", run)


def pytest_collection_finish():
    """Collect garbage again, but never look at what the imports made."""
    gc.freeze()
    gc.enable()


def pytest_runtest_protocol(item, nextitem):
    """In a worker of pytest-xdist, send one report of a test that passes in place of three.

    What is left out, and the messages that a test begins and ends, is printed nowhere.
    """
    if not hasattr(item.config, "workerinput"):
        return None
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    return True


def pytest_runtest_setup(item):
    """Skip what needs a GPU where torch sees none."""
    if item.get_closest_marker("gpu") is not None:
        import torch

        if not torch.cuda.is_available():
            pytest.skip("no CUDA device")
