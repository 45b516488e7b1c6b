"""S6's probe: the real credit, filter and objective of each condition on the same fixed batches.

It runs in a process of its own (`python -m rltune.trainer.probe.run REQUEST ANSWER`), because a
check imports no torch: REQUEST is a JSON file with `base`, `conditions` (label -> resolved config),
`pairs` and `selections` (the pairs that differ in a filter); ANSWER is written.
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import torch

from rltune.comparability.functional import Likeness
from rltune.signals.planning import DEFAULT_GRAMS
from rltune.spec.schema.trial import TrialConfig
from rltune.trainer.probe.batch import make_scenes
from rltune.trainer.probe.pairs import Match, Trace, likeness, match
from rltune.trainer.probe.policy import Words
from rltune.trainer.probe.ratios import Bounds, bounds_of
from rltune.trainer.probe.times import simulate, telling_steps
from rltune.trainer.probe.trace import ProbedCondition, ProbePoint, as_probed, trace
from rltune.trainer.tasks import add_to_path

Pairs = Sequence[tuple[str, str]]
_MOST_PHRASES = 24


def probe(
    configs: Mapping[str, TrialConfig], pairs: Pairs, selections: Pairs = ()
) -> tuple[list[Likeness], dict[str, str]]:
    """Return how the pairs compare, and why some conditions could not be probed.

    `configs` holds every condition of some pair by its label; `selections` are the pairs that
    differ in what the filter selects.
    """
    words = Words(_phrases(configs.values()))
    bounds = bounds_of(configs.values())
    tracks = {label: simulate(config) for label, config in configs.items()}
    subjects = {
        label: ProbedCondition(
            as_probed(config),
            make_scenes(config, n_words=len(words.words)),
            [[settings.sepa for settings in track] for track in tracks[label]],
        )
        for label, config in configs.items()
    }
    points = _points(telling_steps(tracks, pairs), len(next(iter(subjects.values())).scenes))
    matches: dict[tuple[str, str], list[Match]] = {pair: [] for pair in pairs}
    failed: dict[str, str] = {}
    for point in points:
        traces = _traces(subjects, point, words, bounds, failed)
        for a, b in pairs:
            if a in traces and b in traces:
                matches[a, b].append(match(traces[a], traces[b]))
    results = [
        replace(likeness(a, b, matches[a, b]), is_selection=(a, b) in selections)
        for a, b in pairs
        if a not in failed and b not in failed
    ]
    return results, failed


def _traces(
    subjects: Mapping[str, ProbedCondition],
    point: ProbePoint,
    words: Words,
    bounds: Bounds,
    failed: dict[str, str],
) -> dict[str, Trace]:
    """Return what each condition learns at a point; adds those that fail, and leaves them out."""
    traces = {}
    for label, subject in subjects.items():
        if label in failed:
            continue
        try:
            traces[label] = trace(subject, point, words, bounds)
        except Exception as error:  # whatever a custom estimator raises
            failed[label] = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return traces


def _phrases(configs: Iterable[TrialConfig]) -> list[str]:
    """Return the phrases that mark planning in some condition, those first that not all know."""
    lists = [
        set(config.advantage.shaping.grams or DEFAULT_GRAMS)
        for config in configs
        if config.advantage.shaping.hicra_alpha or config.advantage.shaping.sepa.schedule != "none"
    ]
    phrases = set().union(*lists) if lists else set()
    return sorted(phrases, key=lambda phrase: (all(phrase in known for known in lists), phrase))[
        :_MOST_PHRASES
    ]


def _points(steps: Sequence[tuple[int, int]], n_scenes: int) -> list[ProbePoint]:
    """Return what to look at: every batch at the first of the steps, two at each other one."""
    (feedback, step), *others = steps
    points = [ProbePoint(scene, feedback, step) for scene in range(n_scenes)]
    points += [ProbePoint(scene, feedback, step, has_noise=True) for scene in (0, 2)]
    points += [ProbePoint(scene, at, when) for at, when in others for scene in (0, 1)]
    return points


def main(request_file: str, answer_file: str) -> None:
    """Probe the conditions of a request and write the answer."""
    torch.set_num_threads(1)
    request = json.loads(Path(request_file).read_text(encoding="utf-8"))
    add_to_path(Path(request["base"]))
    configs = {
        label: TrialConfig.model_validate(plain) for label, plain in request["conditions"].items()
    }
    pairs = [(a, b) for a, b in request["pairs"]]
    results, failed = probe(configs, pairs, [(a, b) for a, b in request["selections"]])
    answer = {"pairs": [asdict(result) for result in results], "failed": failed}
    Path(answer_file).write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
