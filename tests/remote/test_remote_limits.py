"""A trial that reaches a limit of calls or money ends at a checkpoint, and goes on from it."""

from functools import partial

import pytest
from test_remote_backend import config_of

from rltune.errors import InterruptedRun, TrainOverrunError
from rltune.forecast.service import service_need
from rltune.spec.schema.sweep import Metric
from rltune.store.jsonl import append_jsonl, read_metrics
from rltune.store.rundir import TrialDir
from rltune.store.service_usage import read_usage
from rltune.track.jsonl import JsonlTracker
from rltune.trainer.engines import make_engine
from rltune.trainer.job import Job
from rltune.trainer.loop import train
from rltune.trainer.start import policy_at_start
from rltune.trainer.tasks import env_maker, freeze_tasks

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # see `_sdk_garbage`
PRICES = """
currency: EUR
date: 2026-01-31
source: made up
models: {tiny/sokoban: {prefill: 1.0, sample: 2.0, train: 3.0}}
"""


def config_with(**trainer):
    loss = {"use_kl_loss": True, "kl_loss_coef": 0.1, "kl_type": "k2"}
    gate = {"tasks": 2, "every": 1}
    return config_of("tinker", loss=loss, gate=gate, budget={"steps": 1}, trainer=trainer)


@pytest.fixture
def attempt(tmp_path, connected):
    """Run an attempt of one trial with these keys of `trainer`."""
    (tmp_path / "prices.yaml").write_text(PRICES)
    trial = TrialDir(tmp_path / "trial").create()

    def run(overspent=str, **limits):
        config = config_with(prices="prices.yaml", **limits)
        policy = policy_at_start(trial, config, tmp_path, device="cpu")
        engine = make_engine(config, policy)
        job = Job(
            config=config,
            config_hash="0" * 64,
            trial=trial,
            manifest=freeze_tasks(config, tmp_path),
            make_env=env_maker(config.env),
            policy=policy,
            engine=engine,
            tracker=JsonlTracker(partial(append_jsonl, trial.metrics)),
            metric=Metric(name="heldout/success_rate", mode="max"),
            should_stop=lambda: False,
            warn=lambda text: None,
            say=lambda text: None,
            overspent=overspent,
        )
        try:
            return train(job)
        finally:
            engine.close()

    return trial, run


@pytest.mark.slow
def test_each_limit_ends_an_attempt_by_name_and_nothing_is_lost(attempt):
    trial, run = attempt
    with pytest.raises(TrainOverrunError, match=r"calls to the service reach trainer.max_requests"):
        run(max_requests=1)
    with pytest.raises(TrainOverrunError, match=r"EUR, which reaches trainer.max_cost \(1e-06\)"):
        run(max_cost=1e-6)
    with pytest.raises(InterruptedRun, match=r"stopped at step 0: all is spent; with a larger one"):
        run(overspent=lambda: "all is spent")
    assert [row["step"] for row in read_metrics(trial.metrics).rows] == [0]
    result = run()
    assert result.final_step == 1
    usage = read_usage(trial.service)
    rows = read_metrics(trial.metrics).rows
    assert [row["step"] for row in rows] == [0, 1]
    most = service_need(config_with())
    for name in ("requests", "prompt_tokens", "sampled_tokens", "forward_tokens", "trained_tokens"):
        logged = sum(row[f"tinker/{name}"] for row in rows)
        assert 0 < logged <= getattr(usage, name)  # what the attempts before asked is in the file
        assert logged <= getattr(most, name)  # the plan's
    assert usage.paid["EUR"] >= sum(row["tinker/cost"] for row in rows) > 0
