"""The card of an exported model: what it is, what was measured of it, how to load and repeat it."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from rltune.errors import InputError
from rltune.gate import wilson_interval
from rltune.policy.export import Exported
from rltune.spec.schema.trial import TrialConfig
from rltune.store.files import read_json
from rltune.store.inputs import recorded_inputs
from rltune.store.jsonl import read_jsonl
from rltune.store.origin import read_origin
from rltune.store.rundir import TrialDir

FORMAT = "rltune-model-1"
_PROMPT = 2000  # characters of the first prompt that the card shows
Facts = dict[str, Any]


def card_facts(
    trial: TrialDir, config: TrialConfig, step: int, exported: Exported, *, base: str
) -> Facts:
    """Return what the card says, as plain data.

    Args:
        trial: The trial.
        config: Its config.
        step: Training step of the checkpoint.
        exported: What was written.
        base: Folder or hub id of the model that training began with.

    """
    spec, provenance = trial.read_spec(), _object(trial.provenance)
    origin = read_origin(trial)
    return {
        "format": FORMAT,
        "kind": exported.kind,
        "parameters": exported.parameters,
        "weights_sha256": exported.weights_sha256,
        "base": {
            "model": config.policy.model,
            "path": base,
            "weights_sha256": provenance.get("weights_sha256", ""),
            "parent": None if origin is None else origin.parent,
        },
        "run": trial.path.parents[1].name,
        "trial_id": trial.trial_id,
        "sweep": spec.sweep,
        "condition": spec.condition,
        "axis": {"key": spec.axis_key, "value": spec.axis_value},
        "seed": spec.seed,
        "step": step,
        "status": "running" if (done := trial.read_done()) is None else str(done.status),
        "env": config.env.kind,
        "prompt": {
            "style": config.env.prompt,
            "template": config.policy.template,
            "max_context": config.rollout.max_context,
            "first": _text(trial.prompt)[:_PROMPT],
        },
        "dtype": config.policy.dtype,
        "lora": config.policy.lora.model_dump(mode="json") if config.policy.lora.rank else None,
        "has_critic": config.advantage.kind == "gae",
        "heldout": _heldout(trial, provenance, step),
        "test": _test(trial, step),
        "data": {
            "manifest_sha256": provenance.get("manifest_sha256", ""),
            "inputs": recorded_inputs(provenance),
        },
        "config_hash": spec.config_hash,
        "code": {
            name: provenance.get(name)
            for name in ("commit", "dirty", "diff_sha256", "source_sha256", "versions", "device")
        },
        "command": _command(provenance.get("argv") or []),
    }


def _heldout(trial: TrialDir, provenance: Mapping[str, Any], step: int) -> Facts | None:
    """Return the gate at a step; None where there was none."""
    rows = [row for row in read_jsonl(trial.heldout).rows if row.get("step") == step]
    if not rows:
        return None
    row = rows[-1]
    counted = [ok for ok, fault in zip(row["success"], row["fault"], strict=True) if not fault]
    successes, n = sum(counted), len(counted)
    manifest = _manifest(trial, str(provenance.get("manifest_sha256", "")))
    return {
        "successes": successes,
        "n": n,
        "success_rate": successes / n if n else None,
        "interval": list(wilson_interval(successes, n)) if n else None,
        "floor": manifest.get("heldout_floor"),
        "ceiling": manifest.get("heldout_ceiling"),
        "temperature": row["temperature"],
        "tasks_sha256": row["tasks_sha256"],
    }


def _manifest(trial: TrialDir, sha256: str) -> Mapping[str, Any]:
    for path in sorted(trial.path.parents[1].glob("tasks*.json")):
        content = _object(path)
        if content.get("sha256") == sha256:
            return content
    return {}


def _test(trial: TrialDir, step: int) -> Facts | None:
    """Return the final test, where this very checkpoint was tested."""
    record = _object(trial.path / "test.json")
    if record.get("step") != step:
        return None
    names = ("successes", "n", "success_rate", "interval", "floor", "looks", "temperature")
    return {name: record.get(name) for name in names}


def _command(argv: Sequence[str]) -> str:
    """Return the command line of the launch, its program by its name alone."""
    return shlex.join([Path(argv[0]).name, *argv[1:]]) if argv else ""


def _object(path: Path) -> Mapping[str, Any]:
    try:
        content = read_json(path)
    except InputError:
        return {}
    return content if isinstance(content, dict) else {}


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def card_markdown(facts: Mapping[str, Any]) -> str:
    """Return README.md: metadata for machines in front, then the card for people."""
    head = yaml.safe_dump(_metadata(facts), sort_keys=False, allow_unicode=True)
    return f"---\n{head}---\n\n" + "\n".join(_lines(facts)) + "\n"


def _metadata(facts: Mapping[str, Any]) -> Facts:
    """Return the metadata in the words of the Hugging Face hub."""
    is_adapter, model = facts["kind"] == "adapter", facts["base"]["model"]
    is_hub = not Path(facts["base"]["path"]).is_dir()
    return {
        "library_name": "peft" if is_adapter else "transformers",
        "pipeline_tag": "text-generation",
        **({"base_model": model} if is_hub else {}),
        "tags": ["reinforcement-learning", "rltune", facts["env"]],
        "model-index": [{"name": facts["trial_id"], "results": _results(facts)}],
        "rltune": {
            name: facts[name]
            for name in ("run", "trial_id", "sweep", "condition", "seed", "step", "config_hash")
        }
        | {
            "base": model,
            "heldout": facts["heldout"],
            "manifest_sha256": facts["data"]["manifest_sha256"],
            "commit": facts["code"]["commit"],
        },
    }


def _results(facts: Mapping[str, Any]) -> list[Facts]:
    measured = {"held-out": facts["heldout"], "test": facts["test"]}
    return [
        {
            "task": {"type": "text-generation", "name": facts["env"]},
            "dataset": {
                "type": facts["env"],
                "name": f"{name} tasks of {facts['sweep']}",
                "revision": facts["data"]["manifest_sha256"],
            },
            "metrics": [{"type": "success_rate", "value": one["success_rate"], "name": name}],
        }
        for name, one in measured.items()
        if one is not None and one["success_rate"] is not None
    ]


def _lines(facts: Mapping[str, Any]) -> Iterator[str]:
    what = "LoRA adapter" if facts["kind"] == "adapter" else "model"
    yield from (f"# {facts['trial_id']}, step {facts['step']}", "")
    yield (
        f"The {what} of one trial of reinforcement learning on `{facts['env']}` by rltune: "
        f"{facts['parameters']:,} numbers in float32, trained from `{facts['base']['model']}`."
    )
    yield from ("", "## Measured", "")
    yield from _measured(facts)
    yield from ("", "## Load", "", "```python", *_loading(facts), "```", "")
    yield from _notes(facts)
    yield from ("", "## Came from", "", *(f"- {name}: {value}" for name, value in _origin(facts)))
    yield from ("", "## Repeat", "", "```bash", *_repeating(facts), "```")
    if first := facts["prompt"]["first"]:
        yield from ("", "## The first held-out prompt", "", "````text", first, "````")


def _measured(facts: Mapping[str, Any]) -> Iterator[str]:
    heldout = facts["heldout"]
    if heldout is None:
        yield "- No gate was held at this step."
    else:
        yield f"- held-out: {_rate(heldout)}. The gate chose among checkpoints by these tasks."
        yield f"- random player: {_floor(heldout['floor'])}"
        if heldout["ceiling"] is not None:
            yield f"- perfect player: {heldout['ceiling']:.3f}"
    if facts["test"] is not None:
        yield f"- test: {_rate(facts['test'])}, evaluated {facts['test']['looks']} time(s)."


def _rate(one: Mapping[str, Any]) -> str:
    if not one["n"]:
        return "every task was lost to faults"
    low, high = one["interval"]
    drawn = f"temperature {one['temperature']:g}" if one["temperature"] > 0 else "greedy"
    return (
        f"{one['success_rate']:.3f} [{low:.3f}, {high:.3f}] (95 % Wilson, {one['successes']} of "
        f"{one['n']} tasks), {drawn}"
    )


def _floor(floor: Mapping[str, Any] | None) -> str:
    rate = None if floor is None else floor.get("rate")
    return "unknown" if rate is None else f"{rate:.3f}"


def _loading(facts: Mapping[str, Any]) -> Iterator[str]:
    if facts["kind"] == "adapter":
        yield "from peft import PeftModel"
    yield "from transformers import AutoModelForCausalLM, AutoTokenizer"
    yield ""
    yield 'tokenizer = AutoTokenizer.from_pretrained("THIS_FOLDER")'
    if facts["kind"] == "adapter":
        yield f"base = AutoModelForCausalLM.from_pretrained({facts['base']['path']!r})"
        yield 'model = PeftModel.from_pretrained(base, "THIS_FOLDER")'
    else:
        yield 'model = AutoModelForCausalLM.from_pretrained("THIS_FOLDER")'


def _notes(facts: Mapping[str, Any]) -> Iterator[str]:
    prompt = facts["prompt"]
    if prompt["style"] == "compact":
        yield "- It reads bare text: the observation, then its response, then the next observation."
    else:
        yield f"- Its prompts were written with `policy.template: {prompt['template']}`."
    yield f"- A conversation had at most {prompt['max_context']} tokens."
    yield "- `generate` ends a response at the tokens of generation_config.json, and samples as the"
    yield "  gate did."
    if facts["dtype"] != "float32":
        yield f"- It was trained in {facts['dtype']}: its trained weights are float32 all the same."
    if facts["has_critic"]:
        yield "- The critic is not part of the model; it stays in the trial's checkpoint."


def _origin(facts: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    yield "sweep, condition, seed", f"{facts['sweep']}, {facts['condition']}, {facts['seed']}"
    yield "run folder, status", f"{facts['run']}, {facts['status']}"
    if facts["base"]["parent"]:
        yield "parent", facts["base"]["parent"]
    yield "start", f"weights {facts['base']['weights_sha256']}"
    yield "weights here", facts["weights_sha256"]
    yield "tasks", facts["data"]["manifest_sha256"]
    for name, digest in facts["data"]["inputs"].items():
        yield f"`{name}`", digest
    yield "config", facts["config_hash"]
    code = facts["code"]
    yield "commit", f"{code['commit']}{', dirty' if code['dirty'] else ''}"


def _repeating(facts: Mapping[str, Any]) -> Iterator[str]:
    yield f"git checkout {facts['code']['commit']}"
    yield facts["command"] or f"rltune sweep {facts['sweep']}.yaml"
    runs = _runs_dir(facts["command"])
    yield f"rltune rerun {facts['trial_id']} --verify{runs}"
    yield f"rltune model {facts['trial_id']} --checkpoint {facts['step']} --out my-model{runs}"


def _runs_dir(command: str) -> str:
    """Return the option of the launch that says where its run folder is; empty without one."""
    words = shlex.split(command)
    for word, after in zip(words, (*words[1:], ""), strict=True):
        if word == "--runs-dir":
            return f" --runs-dir {shlex.quote(after)}"
        if word.startswith("--runs-dir="):
            return f" {shlex.quote(word)}"
    return ""
