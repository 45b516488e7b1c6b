"""What stands in trial.log: our own lines at the level asked for, of libraries what is serious."""

import logging
import os

import pytest

from rltune.runner.logfile import logging_to


@pytest.mark.parametrize(
    ("level", "ours"), [("debug", ["debug", "info", "warning"]), ("warning", ["warning"])]
)
def test_libraries_say_warnings_only_even_with_a_level_of_their_own(tmp_path, level, ours):
    loud = logging.getLogger("bm25s_of_the_test")
    loud.setLevel(logging.DEBUG)
    before = logging.getLogger().level, logging.getLogger("rltune").level
    with logging_to(tmp_path / "log", level=level) as log:
        for logger in (log, loud, logging.getLogger("rltune_envs.x"), logging.getLogger("httpx")):
            for name in ("debug", "info", "warning"):
                getattr(logger, name)("%s", name)
    assert (logging.getLogger().level, logging.getLogger("rltune").level) == before
    lines = [line.split(" ")[-2:] for line in (tmp_path / "log").read_text().splitlines()]
    assert lines == [
        *(["rltune.trial:", name] for name in ours),
        ["bm25s_of_the_test:", "warning"],
        *(["rltune_envs.x:", name] for name in ours),
        ["httpx:", "warning"],
    ]


def test_what_is_printed_past_the_logger_holds_no_secret_afterwards(tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", key := "sk-0123456789")
    with logging_to(tmp_path / "log", level="info"):
        print("printed", key)
        os.system("echo from a child $SOME_API_KEY; echo token=a1b2c3d4")
    assert (tmp_path / "log").read_text() == (
        "printed ***\nfrom a child ***\ntoken=a1b2c3d4\n"  # only values that are secrets for sure
    )
