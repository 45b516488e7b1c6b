"""Write textpolicy.json: what the functions of textpolicy's wheel give on drawn inputs.

Needs Python 3.12 and `mlx[cpu]`, and the unpacked wheel's folder as argument; no test runs it. The
modules are loaded without the package's `__init__`, which imports the whole trainer.
"""

import json
import random
import sys
import types
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

OUT = Path(__file__).with_name("textpolicy.json")
HEADER = {
    "source": "package textpolicy, wheel textpolicy-0.1.11-py3-none-any.whl (MIT)",
    "version": f"0.1.11, with mlx {version('mlx')} on a CPU",
    "command": "python3.12 tests/golden/make_textpolicy.py UNPACKED_WHEEL",
    "tolerance": "2e-6 relative and absolute; the original computes in float32",
}


def load(wheel, name):
    for package in ("textpolicy", "textpolicy.algorithms", "textpolicy.training"):
        module = types.ModuleType(package)
        module.__path__ = [str(Path(wheel, *package.split(".")))]
        sys.modules.setdefault(package, module)
    return import_module(name)


def token_cases(wheel, rng):
    """Draw completions, and weigh their tokens; one call per completion, and one per batch."""
    import mlx.core as mx

    grpo = load(wheel, "textpolicy.algorithms.grpo")
    hicra = load(wheel, "textpolicy.algorithms.hicra")
    sepa = load(wheel, "textpolicy.training.sepa").SEPAController(sepa_steps=1)
    for beta, lam, alpha in ((0.1, 0.0, 0.0), (0.1, 0.5, 0.2), (2.0, 1.0, 1.0), (0.0, 0.3, 0.5)):
        lengths = [rng.randint(1, 9) for _ in range(3)]
        draw = [[rng.expovariate(1.0) for _ in range(n)] for n in lengths]
        plan = [[int(rng.random() < 0.3) for _ in range(n)] for n in lengths]
        adv = [rng.gauss(0, 1) for _ in lengths]
        case = {"beta": beta, "lam": lam, "alpha": alpha, "advantages": adv}
        case |= {"signal": draw, "planning": plan}
        for scope in ("completion", "batch"):
            rows = list(zip(adv, draw, plan, strict=True))
            flat = [
                [a for a, h, _ in rows for _ in h],
                sum(draw, []),  # noqa: RUF017
                sum(plan, []),  # noqa: RUF017
            ]
            parts = [flat] if scope == "batch" else [[[a] * len(h), h, p] for a, h, p in rows]
            out = {"sepa": [], "gtpo": [], "hicra": []}
            for part in parts:
                a, h, p = (mx.array(x, dtype=mx.float32) for x in part)
                pooled = sepa.apply(h, p, lambda_t=lam)
                weighed = grpo.apply_entropy_weighting(a, pooled, beta)
                raised = hicra.apply_hicra_amplification(weighed, p, alpha)
                for name, values in zip(out, (pooled, weighed, raised), strict=True):
                    out[name] += values.tolist()
            case[scope] = out
        yield case


def schedule_cases(wheel, rng):
    """Draw signals batch by batch, and ask the controller for lambda after each."""
    import mlx.core as mx

    make = load(wheel, "textpolicy.training.sepa").SEPAController
    for schedule, steps in (("linear", 7), ("auto", 0), ("auto", 30)):
        numbers = {"ema_decay": 0.6, "warmup": 4, "var_threshold": 0.5}
        control = make(
            sepa_steps=steps,
            sepa_schedule=schedule,
            **{f"sepa_{k}": v for k, v in numbers.items()},
        )
        signal, planning, want = [], [], []
        for step in range(1, 15):
            spread = 1.0 if step < 6 else 0.3
            signal.append([1 + spread * rng.random() for _ in range(8)])
            planning.append([1] * 8 if step == 3 else [int(rng.random() < 0.3) for _ in range(8)])
            control.update_auto_state(mx.array(signal[-1]), mx.array(planning[-1]))
            want.append(control.resolve_lambda(step=step))
        case = {"schedule": schedule, "steps": steps, **numbers}
        yield case | {"signal": signal, "planning": planning, "lam": want}


def planning_cases(wheel):
    """Mark the tokens of texts; a token is what stands between two bars."""
    import mlx.core as mx

    identify = load(wheel, "textpolicy.algorithms.hicra").identify_planning_tokens
    texts = {
        "let| me| think": "same",
        "LET| me|\n|Check": "same",
        "nothing| of| the| kind": "same",
        "the| monkey| insight": "same",
        "foo| bar| let| me| think| now": "left",
        "try| an|other| approach": "missed",
        "that|'s| not| right": "missed",
        "wait|,| let| me": "missed",
    }
    grams = ["let me think", "let me check", "key insight", "try another approach"]
    grams += ["that's not right", "wait let me"]
    for text, kind in texts.items():
        pieces = text.split("|")
        marked = [
            piece.replace(" ", "\N{LATIN CAPITAL LETTER G WITH DOT ABOVE}") for piece in pieces
        ]
        speaker = types.SimpleNamespace(
            convert_ids_to_tokens=lambda ids, m=marked: [m[i] for i in ids]
        )
        got = identify(mx.array(list(range(len(pieces)))), speaker, grams)
        yield {"tokens": pieces, "grams": grams, "kind": kind, "marked": got.tolist()}


def main(wheel):
    rng = random.Random(20)
    found = {"header": HEADER, "tokens": list(token_cases(wheel, rng))}
    found |= {
        "schedules": list(schedule_cases(wheel, rng)),
        "planning": list(planning_cases(wheel)),
    }
    rewards = [rng.random() for _ in range(6)]
    import mlx.core as mx

    centred = load(wheel, "textpolicy.algorithms.grpo").compute_advantages(mx.array(rewards))
    found["grpo_center"] = {"rewards": rewards, "advantages": centred.tolist()}
    # Nine digits: a float32 comes back bit by bit.
    short = json.loads(json.dumps(found), parse_float=lambda digits: float(f"{float(digits):.9g}"))
    OUT.write_text(json.dumps(short) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
