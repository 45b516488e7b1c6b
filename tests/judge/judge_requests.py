"""Trajectories to judge, and the key of the scripted judge."""

from rltune.judge.prompt import JudgeRequest

KEY = "sk-test-0123456789abcdef"
GOOD = (True, False, True)


def make_request(name="a"):
    """GOOD, BAD, GOOD by the server's rule: the second observation repeats the first."""
    turns = ((f"go {name}", "room"), ("wait", "room"), ("open", "hall"))
    return JudgeRequest(task=f"task {name}", turns=turns, score=1.0, is_success=True)
