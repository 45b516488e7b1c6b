"""The card of an exported model: its metadata, and how to load and repeat it."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from rltune.trainer.models.base import UNKNOWN
from rltune.trainer.models.facts import Facts


def card_markdown(facts: Mapping[str, Any]) -> str:
    """Return README.md: metadata for machines in front, then the card for people."""
    head = yaml.safe_dump(_metadata(facts), sort_keys=False, allow_unicode=True)
    return f"---\n{head}---\n\n" + "\n".join(_lines(facts)) + "\n"


def _metadata(facts: Mapping[str, Any]) -> Facts:
    """Return the metadata in the words of the Hugging Face hub."""
    is_adapter, base = facts["kind"] == "adapter", facts["base"]
    return {
        "library_name": "peft" if is_adapter else "transformers",
        "pipeline_tag": "text-generation",
        **base["license"],
        **({} if base["how"] else {"base_model": base["model"]}),
        "tags": ["reinforcement-learning", "rltune", facts["env"]],
        "model-index": [{"name": facts["trial_id"], "results": _results(facts)}],
        "rltune": {
            name: facts[name]
            for name in ("run", "trial_id", "sweep", "condition", "seed", "step", "config_hash")
        }
        | {
            "base": base["model"],
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
        base = "BASE_FOLDER" if facts["base"]["how"] else facts["base"]["model"]
        yield f'base = AutoModelForCausalLM.from_pretrained("{base}")'
        yield 'model = PeftModel.from_pretrained(base, "THIS_FOLDER")'
    else:
        yield 'model = AutoModelForCausalLM.from_pretrained("THIS_FOLDER")'


def _notes(facts: Mapping[str, Any]) -> Iterator[str]:
    prompt = facts["prompt"]
    if facts["kind"] == "adapter" and facts["base"]["how"]:
        yield f"- {facts['base']['how']} The adapter changes that base alone:"
        for name, digest in facts["base"]["files"].items():
            yield f"  `{name}` has the sha256 {digest}."
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
    yield "licence of the base", _license(facts["base"]["license"])
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


def _license(license_: Mapping[str, str]) -> str:
    if license_ == UNKNOWN:
        return "unknown, its folder does not say; ask who made it before you pass this on"
    return ", ".join(license_.values())


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
