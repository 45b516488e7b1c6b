"""How good a proposer's predictions were: each beside the verdict's difference to the control."""

from collections.abc import Mapping, Sequence
from typing import Any

from rltune.lineage.calibration import Calibration, Prediction, parse_delta, summed_up
from rltune.study.promotion import verdicts_of_run
from rltune.study.records import accepted
from rltune.study.state import Standing


def predictions_of(found: Sequence[Standing], records: Sequence[Mapping[str, Any]]) -> Calibration:
    """Return the predictions of the sweeps that were proposed, each with what came over all seeds.

    Args:
        found: Where each sweep of the study stands.
        records: Of its proposals.

    """
    names = {record["name"] for record in accepted(records)}
    made, waiting = [], 0
    for one in found:
        if one.sweep.name not in names:
            continue
        known = {x.condition: x for x in verdicts_of_run(one.run)} if one.run.plan.exists() else {}
        for condition in one.loaded.conditions:
            verdict, text = known.get(condition.label), condition.expected_delta
            if text and (verdict is None or not verdict.difference.n):
                waiting += 1
            elif text and verdict is not None:
                name = f"{one.sweep.name}: {condition.label}"
                difference = verdict.difference
                made.append(
                    Prediction(name, text, parse_delta(text), difference.mean, difference.interval)
                )
    return summed_up(tuple(made), waiting=waiting)
