"""Write fieldkit.json: what fieldkit's group advantage gives on drawn rewards.

Needs an environment with `fieldkit` installed; no test runs it.
"""

import json
import random
from importlib.metadata import version
from pathlib import Path

OUT = Path(__file__).with_name("fieldkit.json")


def main():
    from fieldkit.lineage import FailureLabel
    from fieldkit.reward import Reward, group_advantage

    rng = random.Random(21)
    groups = [[1.0, 0.0, 0.0, 0.0], [0.1, 0.1, 0.1], [0.7], [-0.5, 0.0, 1.0, 0.25]]
    groups += [[rng.gauss(0, 3) for _ in range(n)] for n in (2, 5, 8)]
    cases = []
    for scores in groups:
        rewards = [Reward(s >= 1, FailureLabel.KEEP, {"score": s}) for s in scores]
        case = {"rewards": scores, "normalized": group_advantage(rewards)}
        cases.append(case | {"centred": group_advantage(rewards, normalize_std=False)})
    header = {
        "source": "package fieldkit, fieldkit.reward.group_advantage (Apache-2.0)",
        "version": version("fieldkit"),
        "command": "python tests/golden/make_fieldkit.py",
        "tolerance": "1e-12 absolute, in float64",
    }
    OUT.write_text(json.dumps({"header": header, "cases": cases}) + "\n")


if __name__ == "__main__":
    main()
