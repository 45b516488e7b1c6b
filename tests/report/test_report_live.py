import io
from dataclasses import replace

import pytest
from rich.console import Console
from run_folders import CONTROL, CRASH, START, SWEEP, TREATED, FolderWriter, mixed_sweep

from rltune.analysis.status import StatusReader, read_state
from rltune.report.live import LiveProgress, LiveView, PlainProgress, events, first_trials
from rltune.report.render_status import SHOWN_FIRST
from rltune.store.lock import take_driver_lock
from rltune.store.run_folder import read_folder
from rltune.types import TrialStatus

NOW = START + 25.0


@pytest.fixture
def mixed(tmp_path):
    return mixed_sweep(tmp_path)


def test_events_tell_gates_and_changes_once(mixed):
    spec = mixed.spec(CONTROL, 1)
    reader = StatusReader(read_folder(mixed.run))
    said = []
    progress = PlainProgress(said.append, lambda: "12:00:00")
    with take_driver_lock(mixed.run.lock, argv=["rltune"]):
        progress.show(reader.read(now=NOW))
        assert said == ["12:00:00 kl_loss_coef=0.0, seed 1: goes on at step 10/20"]
        progress.show(reader.read(now=NOW))
        assert len(said) == 1  # nothing is new
        mixed.run.trial(spec.trial_id).metrics.unlink()
        mixed.finish(spec, {0: 4, 10: 5, 20: 7})
        progress.show(reader.read(now=NOW))
        mixed.fail(mixed.spec(TREATED, 1), CRASH)
        progress.show(reader.read(now=NOW))
    log = mixed.run.trial(mixed.spec(TREATED, 1).trial_id).log
    assert said[1:] == [
        "12:00:00 kl_loss_coef=0.0, seed 1: step 20/20, held-out 0.700 (start 0.400), "
        "160 tokens/s, 44 s spent",
        "12:00:00 kl_loss_coef=0.0, seed 1: done, held-out 0.400 -> 0.700, best gate at step 20",
        # 3 trials of 20 steps of 2 s, one at a time; 2 finished ones of 160 rollouts and 44 s
        "12:00:00 kl: 1 failed, 2 done, 3 pending, about 2 min left; "
        "so far 320 rollouts, 8,000 tokens, 1 min 28 s of core time",
        "12:00:00 kl_loss_coef=0.1, seed 1: FAILED at step 7/20: "
        f"RuntimeError: out of memory (rltune/x.py:3); log: {log}",
        "12:00:00 kl: 2 failed, 2 done, 2 pending, about 1 min 20 s left; "
        "so far 320 rollouts, 8,000 tokens, 1 min 28 s of core time",
    ]


def test_a_trial_that_starts_again_does_not_claim_to_go_on(mixed):
    """Whether there is a checkpoint to go on from shows only at its next line of metrics."""
    folder = read_folder(mixed.run)
    stopped = read_state(folder, now=NOW)  # nobody drives it
    with take_driver_lock(mixed.run.lock, argv=["rltune"]):
        again = read_state(folder, now=NOW)
    assert [said for _, said in events(stopped, again)] == [
        "kl_loss_coef=0.0, seed 1: started again; its last attempt reached step 10/20"
    ]


def test_first_state_does_not_tell_old_news(mixed):
    assert list(events(None, read_state(read_folder(mixed.run), now=NOW))) == []


def screen(state, *, width=80, height=24, encoding="utf-8"):
    """Return the lines that a terminal of this size shows."""
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=out, force_terminal=True, color_system=None, width=width, height=height)
    console.print(LiveView(state))
    out.flush()
    return out.buffer.getvalue().decode(encoding).splitlines()


@pytest.fixture
def running(mixed):
    with take_driver_lock(mixed.run.lock, argv=["rltune"]):
        yield read_state(read_folder(mixed.run), now=NOW)


def test_the_live_screen(running):
    """Spark: 0.4 is the lowest of all gates, 0.6 the highest, 0.5 half way (3.5 -> the fifth)."""
    assert screen(replace(running, elapsed_s=25.0), width=90) == [
        "",
        "kl: 1 running, 1 failed, 1 done, 3 pending, about 2 min 20 s left",
        "",
        "kl_loss_coef  seed  status    step  held-out  start    now  tok/s  spent  left",
        "0.0              0  done     20/20  ▁▅█       0.400  0.600    160   0:44     -",
        "0.1              0  failed    7/20                -      -      -      -     -",
        "0.0              1  running  10/20  ▁▅        0.400  0.500    160   0:20  0:20",
        "0.1              1  pending   -/20                -      -      -      -     -",
        "0.0              2  pending   -/20                -      -      -      -     -",
        "0.1              2  pending   -/20                -      -      -      -     -",
        "",
        "gates of heldout/success_rate, all trials on one scale: ▁ 0.400 to █ 0.600",
        "so far 240 rollouts, 6,000 tokens, 1 min 4 s of core time; started 25 s ago",
    ]


@pytest.mark.parametrize("width", [30, 46, 60, 80, 120])
def test_the_live_screen_is_never_higher_or_wider_than_the_terminal(running, width):
    for height in range(7, 30):
        lines = screen(running, width=width, height=height)
        assert len(lines) < height
        assert max(map(len, lines)) <= width
        (shown,) = [line for line in lines if " running " in line and "/20" in line]
        assert shown.split()[:4] == ["0.0", "1", "running", "10/20"]


def test_a_low_terminal_says_what_it_hides(running):
    assert screen(running, height=6) == [
        "kl: 1 running, 1 failed, 1 done, 3 pending, about 2 min 20 s left",
        "kl_loss_coef  seed  status    step  held-out  start    now  tok/s  spent  left",
        "0.1              0  failed    7/20                -      -      -      -     -",
        "0.0              1  running  10/20  ▁▅        0.400  0.500    160   0:20  0:20",
        "4 more: 1 done, 3 pending; `rltune status` lists all",
    ]


HEADERS = {  # the least needed goes first: tokens/s, start, spent, the spark line, what is left
    72: "kl_loss_coef seed status   step held-out start   now tok/s spent left",
    67: "kl_loss_coef seed status   step held-out start   now spent left",
    60: "kl_loss_coef seed status   step held-out   now spent left",
    52: "kl_loss_coef seed status   step held-out   now left",
    46: "kl_loss_coef seed status   step   now left",
    38: "kl_loss_coef seed status   step   now",
    30: "kl_l..coef seed status   step",
}


def test_what_a_narrow_terminal_shows(running):
    for width, header in HEADERS.items():
        shown = [line.rstrip() for line in screen(running, width=width, height=50)]
        assert header in shown


def test_a_console_without_blocks_gets_ascii(running):
    text = "\n".join(screen(running, encoding="ascii"))
    assert " _=#  " in text
    assert "one scale: _ 0.400 to # 0.600" in text


def test_more_trials_than_lines(tmp_path):
    writer = FolderWriter(tmp_path, SWEEP, seeds=range(40))
    for seed in (3, 30):
        writer.train(writer.spec(TREATED, seed), {0: 4}, steps=2)
    with take_driver_lock(writer.run.lock, argv=["rltune"]):
        state = read_state(read_folder(writer.run), now=NOW)
    assert len(state.trials) == 80
    for height in (8, 12, 24, 50):
        lines = screen(state, height=height)
        assert len(lines) == height - 1
        assert sum(" running " in line and "/20" in line for line in lines) == 2
    rows = [line.split()[1] for line in lines if "running" in line and "/20" in line]
    assert rows == ["3", "30"]  # in the order of the plan


def test_trials_go_before_notes_on_a_low_terminal(running):
    """Height 12 leaves 9 lines below the heads; six trials need 6, so the notes have 3 of 4."""
    lines = screen(running, width=46, height=12)
    assert sum("/20" in line for line in lines) == 6
    assert not any("one scale" in line for line in lines)
    assert any(line.startswith("so far 240 rollouts") for line in lines)


def test_every_status_has_its_place_on_a_low_terminal():
    assert sorted(SHOWN_FIRST) == sorted(TrialStatus)


def test_first_trials_keep_their_order(running):
    kept = first_trials(running.trials, 4)
    assert [(t.seed, t.status.value) for t in kept] == [
        (0, "done"), (0, "failed"), (1, "running"),
    ]  # fmt: skip
    assert first_trials(running.trials, 6) == running.trials


def test_a_resized_terminal_starts_with_a_clear_screen_and_keeps_what_was_said(mixed):
    console = Console(file=io.StringIO(), force_terminal=True, width=100, height=30)
    reader = StatusReader(read_folder(mixed.run))
    with take_driver_lock(mixed.run.lock, argv=["rltune"]), LiveProgress(console) as live:
        live.show(reader.read(now=NOW))
        mixed.fail(mixed.spec(TREATED, 1), CRASH)
        live.show(reader.read(now=NOW))
        assert "\x1b[2J" not in console.file.getvalue()
        console.file.truncate(0)
        console.size = (60, 20)
        live.show(reader.read(now=NOW))
    text = console.file.getvalue()
    assert text.index("\x1b[2J") < text.index("kl_loss_coef=0.1, seed 1: RuntimeError")
    assert text.count("seed 1: RuntimeError") == 1


def test_live_display_keeps_ends_and_failures_above_the_table(mixed):
    console = Console(file=io.StringIO(), force_terminal=True, width=120, height=30)
    reader = StatusReader(read_folder(mixed.run))
    with take_driver_lock(mixed.run.lock, argv=["rltune"]), LiveProgress(console) as live:
        live.show(reader.read(now=NOW))
        mixed.fail(mixed.spec(TREATED, 1), CRASH)
        mixed.finish(mixed.spec(TREATED, 2), {0: 4, 10: 5, 20: 7})
        live.show(reader.read(now=NOW))
        live.show(reader.read(now=NOW))
    text = console.file.getvalue()
    assert text.count("kl_loss_coef=0.1, seed 1: RuntimeError") == 1
    assert text.count("kl_loss_coef=0.1, seed 2: done, held-out 0.400 -> 0.700") == 1
    assert "seed 0: done" not in text  # it had ended before
    assert text.count("about") >= 2  # the table was drawn with what is left
