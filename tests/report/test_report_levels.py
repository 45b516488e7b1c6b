"""Floor and ceiling in a sentence, as far as they are known."""

from cases import each

from rltune.report.levels import levels_sentence
from rltune_envs.bounds import Floor, FloorKind

EXACT = Floor(FloorKind.EXACT, 0.25)
MEASURED = Floor(FloorKind.MEASURED, 0.5, 16, 32)  # Wilson: (0.5 + 0.06) / 1.12 -+ 0.164
START = Floor(FloorKind.START)


@each(
    ("floor", "ceiling", "sentence"),
    [
        (EXACT, 1.0, "A random player solves 0.250, a perfect one 1.000."),
        (EXACT, None, "A random player solves 0.250; the ceiling is unknown."),
        (
            MEASURED,
            1.0,
            "A random player solves 0.500 (measured, [0.336, 0.664]), a perfect one 1.000.",
        ),
        (START, 0.9, "A perfect player solves 0.900; the floor is unknown."),
        (None, 0.9, "A perfect player solves 0.900; the floor is unknown."),
        (START, None, "Its floor and ceiling are unknown."),
        (None, None, "Its floor and ceiling are unknown."),
    ],
)
def test_what_is_known_is_said(floor, ceiling, sentence):
    assert levels_sentence(floor, ceiling) == sentence


def test_it_says_on_what():
    sentence = "On these a random player solves 0.250, a perfect one 0.750."
    assert levels_sentence(EXACT, 0.75, where="On these") == sentence
