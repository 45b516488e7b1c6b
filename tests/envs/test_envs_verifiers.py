"""Verifiers by hand: what is found in a response, and what counts as equal."""

import pytest
from cases import each

from rltune_envs.files_rows import RowError
from rltune_envs.verifiers import Problem, make_verifier
from rltune_envs.verifiers.boxed import last_boxed, normal_latex
from rltune_envs.verifiers.multiple_choice import find_letter
from rltune_envs.verifiers.number import find_number, read_number
from rltune_envs.verifiers.reasoning_gym import last_tagged


def score(kind, response, answer, *, choices=(), **options):
    problem = Problem("?", answer, choices)
    return make_verifier(kind, options).grade(response, problem).score


@each(
    ("response", "content"),
    [
        (r"so \boxed{4}", "4"),
        (r"\boxed{3}, no: \boxed{ 4 }.", "4"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\boxed{3}}", r"\boxed{3}"),
        (r"\boxed {4}", "4"),
        (r"\fbox{4}", "4"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"a set {1 and \boxed{2}", "2"),
        (r"\boxed{4} and \boxed{5", "4"),  # cut off
        (r"\boxed{\boxed{3}", "3"),  # the outer one is cut off
        (r"\boxed{a{b}", None),
        (r"} \boxed{4}", "4"),
        (r"\boxed4", None),
        ("boxed{4}", None),
        ("4", None),
        (r"\boxed{}", ""),
    ],
)
def test_the_last_whole_box_counts(response, content):
    assert last_boxed(response) == content


def test_long_responses_of_one_kind_are_read():
    assert last_boxed("\\boxed{" * 50_000) is None
    assert normal_latex("\\text{" * 20_000 + "}" * 20_000)
    assert normal_latex("\\frac12" * 20_000)
    assert find_number("1/" * 50_000)
    assert find_number("9" * 100_000)
    assert find_letter("answer " * 20_000) is None
    assert find_letter("answer" + "\n" * 200_000 + "?") is None
    assert last_tagged("<answer>" * 50_000) is None


@each(
    ("text", "form"),
    [
        (r"\frac12", "1/2"),
        (r"\frac{1}{2}", "1/2"),
        (r"\dfrac{1}{2}", "1/2"),
        (r"\tfrac {1} {2}", "1/2"),
        (r"\frac{x+1}{2}", "(x+1)/2"),
        (r"\frac{\frac12}{3}", "(1/2)/3"),
        (r"1\frac12", "1(1/2)"),
        (r"(\frac12, 3)", "(1/2,3)"),
        (r"x^{\frac12}", "x^{1/2}"),
        (r"\frac12\pi", r"(1/2)\pi"),
        (r"\frac{\pi}{2}", r"\pi/2"),
        (r"\frac{2}{\pi}x", r"(2/\pi)x"),
        (r"\frac{1}{2}3", "(1/2)3"),
        (r"\frac12x", "(1/2)x"),
        (r"\dfrac{\sqrt3}{2}", r"\frac{\sqrt{3}}{2}"),
        (r"\frac{1}{2}, \frac{3}{4}", "1/2,3/4"),
        (r"-\frac{3}{4}", "-3/4"),
        ("\u22125", "-5"),
        ("1,234", "1234"),
        (r"1{,}234{,}567", "1234567"),
        ("1,2", "1,2"),
        (r"5\text{ cm}", "5cm"),
        (r"5~\mathrm{cm}", "5cm"),
        (r"\text{Paris}", "Paris"),
        (r"90^\circ", "90"),
        (r"90^{\circ}", "90"),
        (r"\$5", "5"),
        (r"50\%", "50%"),
        (r"\left(1,\, 2\right)", "(1,2)"),
        ("$x = 2$.", "x=2"),
        ("", ""),
    ],
)
def test_boxed_answers_are_compared_in_this_form(text, form):
    assert normal_latex(text) == form


@each(
    ("response", "answer", "right"),
    [
        (r"\boxed{0.5}", r"\frac{1}{2}", True),
        (r"\boxed{.5}", "0.50", True),
        (r"\boxed{50\%}", "0.5", True),
        (r"\boxed{5\text{ cm}}", "5", False),
        (r"\boxed{5\text{ cm}}", "5 cm", True),
        (r"\boxed{x+1}", "1+x", False),
        (r"\boxed{4}", r"The sum is \boxed{4}", True),  # a whole solution as the gold answer
        (r"\boxed{\text{Paris}}", "Paris", True),
        (r"\boxed{paris}", "Paris", False),
        (r"\boxed{1.2.3}", "1.2", False),
        ("4", "4", False),
        (r"\boxed{4", "4", False),
        (r"\boxed{}", "4", False),
    ],
)
def test_boxed(response, answer, right):
    assert score("boxed", response, answer) == right


def test_boxed_as_text_compares_no_values():
    assert score("boxed", r"\boxed{0.5}", r"\frac12", compare="text") == 0
    assert score("boxed", r"\boxed{\frac{1}{2}}", r"\frac12", compare="text") == 1


@each(
    ("response", "answer", "right"),
    [
        ("  Paris \n", "Paris", True),
        ("e\u0301te\u0301", "\u00e9t\u00e9", True),
        ("two  words", "two words", True),
        ("paris", "Paris", False),
        ("Paris.", "Paris", False),
        ("", "Paris", False),
    ],
)
def test_exact(response, answer, right):
    assert score("exact", response, answer) == right


def test_exact_without_case():
    assert score("exact", "STRASSE", "Straße", ignore_case=True) == 1


@pytest.mark.parametrize(
    ("response", "right"),
    [
        ("Answer: 4", True),
        ("Answer: 3\nAnswer:  4 ", True),
        ("Answer: 4\nAnswer: 3", False),
        ("answer: 4", False),
        ("4", False),
    ],
)
def test_regex(response, right):
    assert score("regex", response, "4", pattern=r"^Answer:\s*(.+)$") == right


@each(
    ("text", "value"),
    [
        ("18", 18),
        ("-3", -3),
        ("\u22123", -3),
        ("+3", 3),
        ("1,234,567.5", 1234567.5),
        ("3/4", 0.75),
        ("1 / 4", 0.25),
        ("50%", 0.5),
        ("$18", 18),
        ("-$18", -18),
        ("18 apples", 18),
        ("18.", 18),
        (".5", 0.5),
        ("1e3", 1000),
        ("2.5E-1", 0.25),
        ("1/0", None),
        ("1e999999999", None),
        ("9" * 100, None),
        ("3-4", None),  # two numbers
        ("none", None),
        ("", None),
    ],
)
def test_numbers_are_read(text, value):
    assert read_number(text) == value


@each(
    ("response", "found"),
    [
        ("first 3, then 18.", "18"),
        ("#### 1,234", "1,234"),
        ("5-3", "3"),
        ("x = \u22123", "-3"),
        ("12,34", "34"),
        ("no number", None),
        ("1/2", "1/2"),
        ("5 %", "5 %"),
    ],
)
def test_the_last_number_counts(response, found):
    assert find_number(response) == found


def test_a_worked_answer_of_gsm8k_is_the_number_after_its_mark():
    assert score("number", "so 1234", "2 times 617.\n#### 1,234") == 1
    assert score("number", "so 617", "2 times 617.\n#### 1,234") == 0


def test_number_tolerances():
    assert score("number", "3.14", "3.14159") == 0
    assert score("number", "3.14", "3.14159", tolerance=0.01) == 1
    assert score("number", "102", "100", relative_tolerance=0.02) == 1
    assert score("number", "103", "100", relative_tolerance=0.02) == 0
    assert score("number", "0.1 + 0.2 is 0.3", "0.3") == 1


@each(
    ("response", "letter"),
    [
        ("B", "B"),
        ("b)", "B"),
        ("(B)", "B"),
        ("**B**", "B"),
        ("The answer is B because it fits", "B"),
        ("Answer: (C)", "C"),
        ("The answer is (A). No: the answer is (B)", "B"),
        ("(A) is wrong, so (D)", "D"),
        (r"\boxed{C}", "C"),
        (r"\boxed{\text{C}}", "C"),
        ("I thought.\nD.", "D"),
        ("The answer is a dog", None),
        ("My answer: I think (B)", "B"),
        ("Berlin", None),
        ("", None),
    ],
)
def test_the_chosen_letter(response, letter):
    assert find_letter(response) == letter


@pytest.mark.parametrize(
    ("answer", "letter"), [("B", "B"), ("b", "B"), ("Ulm", "C"), ("0", "A"), ("2", "C")]
)
def test_the_right_choice_by_letter_text_or_index(answer, letter):
    problem = Problem("?", answer, ("Rom", "Bonn", "Ulm"))
    assert make_verifier("multiple_choice").gold(problem) == letter


@each(
    ("kind", "problem", "message"),
    [
        ("number", Problem("?", "many"), "the answer 'many' is not one number; give a number, or "
         "take another verifier (boxed, exact)"),
        ("number", Problem("?", "3 or 4"), "the answer '3 or 4' is not one number; give a number, "
         "or take another verifier (boxed, exact)"),
        ("boxed", Problem("?", "{1"), "the answer '{1' has braces that are not balanced; repair "
         "it"),
        ("boxed", Problem("?", "$ $"), "the answer '$ $' is empty once spacing is dropped"),
        ("multiple_choice", Problem("?", "E", ("x", "y")), "the answer 'E' is none of its choices; "
         "give the letter, from A to B"),
        ("multiple_choice", Problem("?", "1", ("1", "2")), "the answer '1' may mean A or B; give "
         "the letter, from A to B"),
        ("multiple_choice", Problem("?", "A", ("x",)), "it has 1 choices; from 2 to 26 are needed"),
        ("multiple_choice", Problem("?", "A", ("x", "x ")), "two of its choices are equal; make "
         "them differ"),
    ],
)  # fmt: skip
def test_an_answer_that_cannot_be_one(kind, problem, message):
    with pytest.raises(RowError) as caught:
        make_verifier(kind).gold(problem)
    assert str(caught.value) == message


@pytest.mark.parametrize("kind", ["boxed", "number", "multiple_choice", "exact"])
def test_a_written_gold_answer_is_right(kind):
    problem = Problem("?", "1", ("a", "b"))
    verifier = make_verifier(kind)
    gold = verifier.gold(problem)
    grade = verifier.grade(verifier.write(gold), problem)
    assert (grade.score, grade.given) == (1, gold)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pattern": "("}, "pattern: '(' is not a regular expression: missing ), unterminated "
         "subpattern at position 0"),
        ({"pattern": "x"}, "pattern: 'x' has 0 groups; put one pair of parentheses around the "
         "answer, and write (?:...) for others"),
        ({"pattern": "(x)", "form": "x"}, "form: 'x' must hold {answer} once"),
    ],
)  # fmt: skip
def test_a_pattern_that_cannot_be_used(options, message):
    with pytest.raises(ValueError, match=r".") as caught:
        make_verifier("regex", options)
    assert str(caught.value) == message


def test_a_verifier_that_does_not_exist():
    with pytest.raises(ValueError, match=r".") as caught:
        make_verifier("box")
    assert str(caught.value) == (
        "verifier is 'box'; choose one of boxed, exact, regex, multiple_choice, number, "
        "reasoning_gym, or an import path such as my_pkg.my_mod:score. Did you mean 'boxed'?"
    )
