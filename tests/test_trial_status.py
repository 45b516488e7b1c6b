"""What the status of a trial means for those who ask: one property a question."""

from cases import each

from rltune.types import TrialStatus

ANSWERS = [  # (status, is_finished, is_failure, has_ended)
    (TrialStatus.PENDING, False, False, False),
    (TrialStatus.RUNNING, False, False, False),
    (TrialStatus.INTERRUPTED, False, False, False),
    (TrialStatus.FAILED, False, True, True),
    (TrialStatus.DIVERGED, True, True, True),
    (TrialStatus.STOPPED_EARLY, True, False, True),
    (TrialStatus.DONE, True, False, True),
]


@each(("status", "is_finished", "is_failure", "has_ended"), ANSWERS)
def test_each_status_answers_three_questions(status, is_finished, is_failure, has_ended):
    assert status.is_finished is is_finished
    assert status.is_failure is is_failure
    assert status.has_ended is has_ended


def test_no_status_is_left_out():
    assert {row[0] for row in ANSWERS} == set(TrialStatus)
