"""Engines that tests run in a process of its own, which imports nothing but this file."""

import hashlib
import os
import time
from pathlib import Path

import torch

from rltune.errors import InputError, Problem

STUCK = 99


class Stuck:
    """An engine that does not end, or not well."""

    def __init__(self, model):
        self._is_stuck = model.adapter_rank == STUCK

    def close(self):
        if not self._is_stuck:
            raise KeyError("it cannot end")
        time.sleep(600)


class Reader:
    """An engine that tells what it was given of a policy, and fails on request."""

    def __init__(self, model):
        self._model = model
        self._folder = Path(os.environ["TMPDIR"]) / "read"
        self._folder.mkdir()

    def generate(self, requests, params):
        if params == "value":
            raise ValueError("a value of 7 is too large")
        if params == "unknown":
            raise KeyError("no such thing")
        if params == "environment":
            return dict(os.environ) | {"threads": torch.get_num_threads()}
        return {name: digest(tensor) for name, tensor in self._model.weights()}

    def sync(self):
        self._model.write_config(self._folder, max_context=99)
        self._model.write_adapter(self._folder)

    def release(self):
        """Read one weight of all: the next reading must begin anew."""
        next(iter(self._model.weights()))

    def close(self):
        """Nothing is held."""


def refusing(model):
    raise InputError(Problem("rollout.engine", "it is too warm today.", action="Wait."))


def digest(tensor):
    """Return what tells tensors apart, and where in a line of 64 bytes one begins."""
    data = tensor.contiguous().view(torch.uint8).numpy().tobytes()
    place = tensor.data_ptr() % 64
    return [str(tensor.dtype), list(tensor.shape), place, hashlib.sha256(data).hexdigest()]
