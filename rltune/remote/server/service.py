"""What the server answers to each call of the Tinker SDK. No HTTP inside."""

import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rltune.policy.load import CausalLM
from rltune.remote.server.adapter import Adapter, require_tokens, targets_of
from rltune.remote.server.bases import Base, Bases
from rltune.remote.server.external import External
from rltune.remote.server.jobs import Answer, Job, Jobs
from rltune.remote.server.sampler import SampleRequest, read_sample, sample
from rltune.remote.server.states import States
from rltune.remote.server.wire import Pass, RefusedError, read_pass, write_pass

Json = Mapping[str, Any]

_WAIT_S = 20.0  # longest that a fetch is held open; the client then asks again
_SNAPSHOTS = 8  # newest unnamed snapshots kept of a model


class UnknownError(Exception):
    """A session, model or request that this server does not know."""


class Service:
    """Sessions, adapters, snapshots and the queue of their work.

    Args:
        folder: Where named checkpoints go; they outlive the server.
        bases: The base models.

    """

    def __init__(self, folder: Path, bases: Bases) -> None:
        self._bases, self._states = bases, States(folder)
        self.external = External(folder)
        self._jobs = Jobs()
        self._sessions: set[str] = set()
        self._adapters: dict[str, Adapter] = {}
        self._samplers: OrderedDict[str, tuple[str, CausalLM | None]] = OrderedDict()
        self._lock = threading.Lock()
        self.is_closed = False
        self.calls: dict[str, Callable[[Json], Answer]] = {
            "client/config": lambda _: _CONFIG,
            "client/dynamic_config": lambda _: {},
            "telemetry": lambda _: {"status": "accepted"},
            "cancel_future": lambda _: {},
            "create_session": self._create_session,
            "session_heartbeat": self._heartbeat,
            "create_model": self._create_model,
            "load_weights": self._load_weights,
            "get_info": self._info,
            "optim_step": self._optim_step,
            "save_weights": self._save_weights,
            "save_weights_for_sampler": self._save_for_sampler,
            "save_weights_external": self._save_external,
            "create_sampling_session": self._create_sampler,
            "asample": self._sample,
            "retrieve_future": self._retrieve,
        }

    def close(self) -> None:
        """End the work; what is asked after this has no answer."""
        self.is_closed = True
        self._jobs.close()

    def capabilities(self) -> Answer:
        """Return the base models."""
        return {"supported_models": [{"model_name": name} for name in self._bases.names]}

    def sampler(self, name: str) -> Answer:
        """Return the base of a sampler."""
        if name not in self._samplers:
            raise UnknownError(f"sampler {name!r}")
        return {"sampler_id": name, "base_model": self._samplers[name][0], "model_path": None}

    def forward_backward(self, body: bytes) -> Answer:
        """Queue a pass."""
        asked = read_pass(body)
        adapter = self._adapter(asked.model_id)
        return self._queue(asked.model_id, asked.seq_id, partial(_pass, adapter, asked))

    def _create_session(self, asked: Json) -> Answer:
        name = uuid.uuid4().hex
        self._sessions.add(name)
        return {"session_id": name}

    def _heartbeat(self, asked: Json) -> Answer:
        self._require_session(asked)
        return {}

    def _create_model(self, asked: Json) -> Answer:
        session = self._require_session(asked)
        name, lora = f"{session}:train:{asked['model_seq_id']}", asked["lora_config"]

        def create() -> Answer:
            self._adapters[name] = Adapter(
                self._bases.get(asked["base_model"]).network,
                asked["base_model"],
                rank=lora["rank"],
                seed=lora.get("seed") or 0,
                targets=targets_of(
                    attention=lora.get("train_attn", True),
                    mlp=lora.get("train_mlp", True),
                    unembed=lora.get("train_unembed", True),
                ),
            )
            return {"model_id": name}

        return self._queue(name, 0, create)

    def _load_weights(self, asked: Json) -> Answer:
        if "session_id" not in asked:
            raise RefusedError("this server loads weights into a new client only")
        session = self._require_session(asked)
        name = f"{session}:train:{asked['model_seq_id']}"

        def load() -> Answer:
            path, known = self._states.find(asked["path"])
            base = self._bases.get(known["base_model"]).network
            adapter = Adapter(
                base,
                known["base_model"],
                rank=known["rank"],
                seed=0,
                targets=known["targets"],
            )
            adapter.restore(path, with_optimizer=asked["optimizer"])
            self._adapters[name] = adapter
            return {"path": asked["path"], "model_id": name}

        return self._queue(name, 0, load)

    def _info(self, asked: Json) -> Answer:
        name = asked["model_id"]
        adapter = self._adapter(name)
        base = adapter.base_name
        return {
            "model_data": {"model_name": base, "tokenizer_id": base},
            "model_id": name,
            "model_name": base,
            "is_lora": True,
            "lora_rank": adapter.rank,
        }

    def _optim_step(self, asked: Json) -> Answer:
        if "adam_params" not in asked:
            raise RefusedError("this server's optimiser is AdamW; give AdamParams")
        adapter = self._adapter(asked["model_id"])

        def step() -> Answer:
            return {"metrics": adapter.step(asked["adam_params"])}

        return self._queue(asked["model_id"], asked["seq_id"], step)

    def _save_weights(self, asked: Json) -> Answer:
        model = asked["model_id"]
        adapter, name = self._adapter(model), asked.get("path") or f"seq-{asked['seq_id']}"

        def save() -> Answer:
            overwrite = bool(asked.get("overwrite"))
            return {"path": self._states.save(model, "weights", name, adapter, overwrite=overwrite)}

        return self._queue(model, asked["seq_id"], save)

    def _save_for_sampler(self, asked: Json) -> Answer:
        model = asked["model_id"]
        adapter, name = self._adapter(model), asked.get("path")

        def save() -> Answer:
            if name is not None:
                path = self._states.save(model, "sampler_weights", name, adapter, overwrite=False)
                return {"path": path}
            session = model.partition(":")[0]
            sampler = f"{session}:sample:{asked['sampling_session_seq_id']}"
            self._keep(sampler, adapter.base_name, adapter.frozen_copy())
            return {"sampling_session_id": sampler}

        return self._queue(model, asked["seq_id"], save)

    def _save_external(self, asked: Json) -> Answer:
        if asked.get("age_encryption_recipients"):
            raise RefusedError("this server encrypts no files")
        model, name = asked["model_id"], asked["path"]
        adapter = self._adapter(model)

        def save() -> Answer:
            return {"path": self.external.save(model, name, adapter)}

        return self._queue(model, asked["seq_id"], save)

    def _create_sampler(self, asked: Json) -> Answer:
        session = self._require_session(asked)
        name = f"{session}:sample:{asked['sampling_session_seq_id']}"
        if path := asked.get("model_path"):
            file, known = self._states.find(path)
            base = self._bases.get(known["base_model"]).network
            adapter = Adapter(
                base, known["base_model"], rank=known["rank"], seed=0, targets=known["targets"]
            )
            adapter.restore(file, with_optimizer=False)
            self._keep(name, known["base_model"], adapter.network)
        else:
            self._bases.get(asked["base_model"])
            self._keep(name, asked["base_model"], None)
        return {"sampling_session_id": name}

    def _sample(self, asked: Json) -> Answer:
        name = str(asked.get("sampling_session_id"))
        if name not in self._samplers:
            raise UnknownError(f"sampler {name!r}; unnamed snapshots are kept for a while only")
        base_name, network = self._samplers[name]
        base = self._bases.get(base_name)
        request = read_sample(asked, end_ids=base.end_ids, seed=asked["seq_id"])
        require_tokens([request.prompt_ids], base.network, base_name)
        run = partial(_samples, base, network or base.network)
        request_id = f"{name}:{asked['seq_id']}"
        self._jobs.submit(request_id, Job(run, request, (name, request.kind)))
        ids = [f"{request_id}-{nth}" for nth in range(request.n_samples)]
        return {"request_id": request_id, "sample_sequence_ids": ids}

    def _retrieve(self, asked: Json) -> Answer:
        name = asked["request_id"]
        try:
            answer = self._jobs.fetch(name, timeout_s=_WAIT_S)
        except KeyError as error:
            raise UnknownError(f"request {name!r}") from error
        if answer is None:
            return {"type": "try_again", "request_id": name, "queue_state": "active"}
        return answer

    def _queue(self, model: str, seq: int, work: Callable[[], Answer]) -> Answer:
        """Queue work under its place in the client's order: sent again, it is not done again."""
        name = f"{model}:{seq}"
        self._jobs.submit(name, Job(lambda payloads: [work() for _ in payloads], None))
        return {"request_id": name, "model_id": model}

    def _keep(self, name: str, base: str, network: CausalLM | None) -> None:
        """Keep a sampler; of one session the newest snapshots only."""
        with self._lock:
            self._samplers[name] = (base, network)
            session = name.partition(":")[0]
            own = [
                other
                for other, (_, weights) in self._samplers.items()
                if weights is not None and other.startswith(f"{session}:")
            ]
            for other in own[:-_SNAPSHOTS]:
                del self._samplers[other]

    def _adapter(self, name: str) -> Adapter:
        if name not in self._adapters:
            raise UnknownError(f"model {name!r}")
        return self._adapters[name]

    def _require_session(self, asked: Json) -> str:
        if (name := asked["session_id"]) not in self._sessions:
            raise UnknownError(f"session {name!r}; was the server started again?")
        return str(name)


_CONFIG: dict[str, Any] = {
    "pjwt_auth_enabled": False,
    "parallel_fwdbwd_chunks": False,
    "use_pyqwest_transport": False,
}


def _pass(adapter: Adapter, asked: Pass) -> Answer:
    logprobs, loss = adapter.run(asked)
    return write_pass(logprobs, {"loss:sum": loss})


def _samples(base: Base, network: CausalLM, asked: Sequence[SampleRequest]) -> list[bytes]:
    return sample(network, asked, pad_id=base.pad_id)
