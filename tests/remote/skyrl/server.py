"""SkyRL's Tinker server (skyrl 0.4.0, JAX) as the SDK 0.38 needs it, for the contract tests.

    python server.py --base-model DIR --backend jax --port N ...   (its own arguments)

What is mended, each in a function or a class of its own: it starts its engine with `uv run`; losses
are means where the protocol sums; a snapshot shares the slot that is trained; and the wire lacks
what later SDKs ask for. Runs in an environment with skyrl, without rltune.
"""

import argparse
import dataclasses
import inspect
import json
import sys
import textwrap
import typing

import typing_extensions

if sys.version_info < (3, 12):  # skyrl asks for 3.12, and needs it for this alone
    typing.TypedDict = typing_extensions.TypedDict

_MEAN = "per_token_losses.sum(axis=-1) / jnp.maximum(loss_mask.sum(axis=-1), 1e-9)"


def run_engine() -> None:
    """Run the process that computes."""
    import skyrl.backends.jax as backend
    from skyrl.tinker.engine import main

    sum_losses(backend)
    backend.JaxBackendImpl.load_sampler_weights = snapshot_slots
    main()


def sum_losses(backend) -> None:
    """Sum losses over tokens and rows: no division, neither by a row's weights nor by the rows."""
    import jax.numpy as jnp

    source = textwrap.dedent(inspect.getsource(backend.JaxBackendImpl._create_loss_and_grad_fn))
    assert source.count(_MEAN) == 1, "skyrl changed its reduction"
    exec(source.replace(_MEAN, "per_token_losses.sum(axis=-1)"), vars(backend))
    backend.JaxBackendImpl._create_loss_and_grad_fn = backend._create_loss_and_grad_fn
    mean_of = backend.AccumulatedGradients.get_mean

    def sum_of(self, index):
        return mean_of(dataclasses.replace(self, counts=jnp.minimum(self.counts, 1)), index)

    backend.AccumulatedGradients.get_mean = sum_of


def snapshot_slots(self, batch):
    """Give each snapshot of a batch a slot of its own; the oldest make room.

    skyrl loads a snapshot over the weights in training, and samples those where it was loaded once.
    """
    from cloudpathlib import AnyPath
    from skyrl.tinker import types
    from skyrl.tx.layers.lora import init_lora_adapter

    rows = (batch.all_model_ids, batch.all_checkpoint_ids, batch.all_checkpoint_paths)
    wanted = list(zip(*rows, strict=True))
    slots = vars(self).setdefault("_snapshots", {})  # the oldest first

    def free():
        used = {model.adapter_index for model in self.models.values()}
        return set(range(1, self.config.max_lora_adapters)) - used

    for key in wanted:
        model, checkpoint, path = key
        if not model:
            continue
        if key not in slots:
            if not free():
                self.models.pop(slots.pop(next(old for old in slots if old not in wanted)))
            name, lora = f"snapshot {path}", self.models[model].lora_config
            slot = min(free())
            self.models[name] = types.ModelMetadata(adapter_index=slot, lora_config=lora)
            init_lora_adapter(self.model, slot, lora)  # its rank and scale
            self.load_sampler_checkpoint(name, checkpoint, AnyPath(path))
            slots[key] = name
        slots[key] = slots.pop(key)
    return [self.models[slots[key]].adapter_index if key[0] else 0 for key in wanted]


class Wire:
    """ASGI: sequence ids of samples, and a client that begins by loading a state."""

    def __init__(self, app, api):
        self.app, self.api = app, api

    async def __call__(self, scope, receive, send):
        path = scope.get("path", "")
        if scope["type"] != "http" or not path.endswith(("/asample", "/load_weights")):
            await self.app(scope, receive, send)
            return
        body = await _body(receive)
        asked = json.loads(body)
        if path.endswith("/load_weights") and asked.get("session_id"):
            model = await self._create(asked)
            body = json.dumps(
                {"model_id": model, "path": asked["path"], "optimizer": asked["optimizer"]}
            ).encode()
            scope = {**scope, "headers": _headers(scope, body)}
        n = asked.get("num_samples", 1) if path.endswith("/asample") else 0
        await self._pass_on(scope, body, receive, send, n)

    async def _pass_on(self, scope, body, receive, send, n):
        """Let the app answer; give each of `n` samples an id."""
        parts, start, is_read = [], {}, False

        async def listen():
            nonlocal is_read
            if is_read:
                return await receive()
            is_read = True
            return {"type": "http.request", "body": body}

        async def answer(message):
            if message["type"] == "http.response.start":
                start.update(message)
                return
            parts.append(message.get("body", b""))
            if message.get("more_body"):
                return
            whole = b"".join(parts)
            if n and start["status"] == 200:
                data = json.loads(whole)
                data["sample_sequence_ids"] = [f"{data['request_id']}-{nth}" for nth in range(n)]
                whole = json.dumps(data).encode()
            await send({**start, "headers": _headers(start, whole)})
            await send({"type": "http.response.body", "body": whole})

        await self.app(scope, listen, answer)

    async def _create(self, asked):
        """Create the model that the state is loaded into; return its name."""
        from skyrl.tinker import types

        api, name = self.api, f"{asked['session_id']}:train:{asked['model_seq_id']}"
        async with api.AsyncSession(api.app.state.db_engine) as session:
            source = await api.get_model(session, types.TinkerPath.parse(asked["path"]).primary_id)
            lora = types.LoraConfig.model_validate(source.lora_config)
            request = await api.create_future(
                session=session,
                request_type=types.RequestType.CREATE_MODEL,
                model_id=name,
                request_data=types.CreateModelInput(lora_config=lora),
            )
            session.add(
                api.ModelDB(
                    model_id=name,
                    base_model=source.base_model,
                    lora_config=lora.model_dump(),
                    status="created",
                    request_id=request,
                    session_id=asked["session_id"],
                )
            )
            await session.commit()
        return name


async def _body(receive):
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    return body


def _headers(message, body):
    """Return a message's headers with the length of another body."""
    kept = [one for one in message["headers"] if one[0].lower() != b"content-length"]
    return [*kept, (b"content-length", str(len(body)).encode())]


def serve() -> None:
    """Serve until a signal; the engine is a process of its own."""
    import skyrl.tinker.api as api
    import uvicorn
    from skyrl.tinker.config import config_to_argv

    def command(_, config):
        return [sys.executable, __file__, "engine", *config_to_argv(config)]

    serialize = api.serialize_result

    def with_loss_sum(kind, result):  # the SDK's forward_backward_custom reads it
        if "loss_fn_outputs" in result:
            losses = (sum(one["elementwise_loss"]["data"]) for one in result["loss_fn_outputs"])
            result["metrics"].setdefault("loss:sum", sum(losses))
        return serialize(kind, result)

    api._build_uv_run_cmd_engine, api.serialize_result = command, with_loss_sum
    parser = argparse.ArgumentParser()
    api.add_model(parser, api.EngineConfig)
    parser.add_argument("--port", type=int, required=True)
    given = vars(parser.parse_args())
    known = {name: given[name] for name in given if name in api.EngineConfig.model_fields}
    api.app.state.engine_config = api.EngineConfig.model_validate(known)
    uvicorn.run(Wire(api.app, api), host="127.0.0.1", port=given["port"], log_level="warning")


if __name__ == "__main__":
    if sys.argv[1:2] == ["engine"]:
        del sys.argv[1]
        run_engine()
    else:
        serve()
