"""Drive a sweep as the command line does, and print the outcome as one JSON line.

python drive_sweep.py SWEEP_FILE RUNS_DIR MAX_CONCURRENT [RAY_ADDRESS]
"""

import json
import sys
from pathlib import Path

from rltune.runner.sweep import SweepRequest, run_sweep
from rltune.spec.load import load_sweep


def main() -> None:
    ticks = []
    request = SweepRequest(
        loaded=load_sweep(Path(sys.argv[1])),
        runs_dir=Path(sys.argv[2]),
        max_concurrent=int(sys.argv[3]),
        ray_address=sys.argv[4] if len(sys.argv) > 4 else None,
        allow_confounded=None,
        argv=tuple(sys.argv),
    )
    said: list[str] = []
    outcome = run_sweep(
        request,
        on_start=lambda run, specs: None,
        on_tick=lambda: ticks.append(1),
        say=said.append,
        tick_s=0.2,
    )
    report = {
        "statuses": {name: status.value for name, status in outcome.statuses.items()},
        "begun": sorted(outcome.begun),
        "is_interrupted": outcome.is_interrupted,
        "ticks": len(ticks),
        "said": said,
        "ray": "ray" in sys.modules,
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
