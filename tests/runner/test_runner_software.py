"""What differs between the software of two runs."""

from pathlib import Path

from rltune.runner.software import changes_since, software_now

BEFORE = {
    "commit": "a" * 40,
    "dirty": False,
    "diff_sha256": "",
    "source_sha256": "s" * 64,
    "versions": {"torch": "2.6", "numpy": "2.0"},
    "device": "cpu",
    "cpu_model": "one",
    "threads": 1,
    "weights_sha256": "w" * 64,
    "inputs": {"levels.txt": "e" * 64},
    "earlier": [],
}


def test_the_same_software_has_no_changes():
    assert changes_since(BEFORE, dict(BEFORE)) == ()
    now = software_now(BEFORE, Path())
    assert changes_since(now, now) == ()


def test_files_are_read_as_they_are_now(tmp_path):
    (tmp_path / "levels.txt").write_text("x")
    now = software_now(BEFORE, tmp_path)
    (change,) = changes_since(BEFORE, {"inputs": now["inputs"]})
    assert (change.name, change.is_input) == ("levels.txt", True)
    older = {name: value for name, value in BEFORE.items() if name != "inputs"}
    assert changes_since(older, {"inputs": {"levels.txt": "x"}}) == ()


def test_a_commit_is_told_and_sources_decide():
    now = {**BEFORE, "commit": "b" * 40, "dirty": True}
    changes = changes_since(BEFORE, now)
    assert [str(change) for change in changes] == [
        f"commit: {'a' * 12} then, {'b' * 12} now",
        "uncommitted changes: False then, True now",
    ]
    assert not any(change.decides for change in changes)
    (change,) = changes_since(BEFORE, {**BEFORE, "source_sha256": "t" * 64})
    assert (change.name, change.decides) == ("rltune's Python files", True)


def test_packages_processor_and_weights_decide():
    now = {
        **BEFORE,
        "versions": {"torch": "2.7", "numpy": "2.0"},
        "cpu_model": "two",
        "weights_sha256": "v" * 64,
        "inputs": {"levels.txt": ""},
    }
    changes = changes_since(BEFORE, now)
    names = [change.name for change in changes]
    assert names == ["processor", "weights at the start", "torch", "levels.txt"]
    assert all(change.decides for change in changes)
    assert [change.is_input for change in changes] == [False, False, False, True]
    assert str(changes[3]) == f"levels.txt: {'e' * 12} then, none now"
    assert str(changes[2]) == "torch: 2.6 then, 2.7 now"


def test_what_is_not_known_yet_is_not_compared():
    assert changes_since(BEFORE, {"commit": "a" * 40}) == ()


def test_attempts_of_other_code_are_told():
    other = {**BEFORE, "attempt": 1, "source_sha256": "old"}
    (change,) = changes_since({**BEFORE, "earlier": [other]}, BEFORE)
    assert change.name == "rltune's Python files of the original's attempt 1"
    assert change.decides
    untrained = {**other, "weights_sha256": ""}
    assert changes_since({**BEFORE, "earlier": [untrained]}, BEFORE) == ()
