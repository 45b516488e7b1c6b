"""How good a proposer's predictions were: each beside the verdict's difference to the control."""

from collections.abc import Mapping, Sequence
from typing import Any

from rltune.lineage.calibration import (
    Calibration,
    Prediction,
    parse_delta,
    summed_up,
    told_by_condition,
)
from rltune.runner.folder import as_begun
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
        for condition, text in told_by_condition(as_begun(one.run, one.due.specs)).items():
            verdict = known.get(condition)
            if verdict is None or not verdict.difference.n:
                waiting += 1
            else:
                name = f"{one.sweep.name}: {condition}"
                difference = verdict.difference
                made.append(
                    Prediction(name, text, parse_delta(text), difference.mean, difference.interval)
                )
    return summed_up(tuple(made), waiting=waiting)
