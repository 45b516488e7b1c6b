"""Tables in a narrow terminal: lines grow long before a number breaks or a column is lost."""

import io

from rltune.cli.console import QuietConsole
from rltune.report.render import grid, indent, line, verbatim


def printed(item, width=30):
    out = io.StringIO()
    QuietConsole(file=out, width=width).print(item)
    return out.getvalue().splitlines()


def table():
    drawn = grid(("condition", "policy updates", "tokens", "status"), right=(1, 2), gap=1)
    drawn.add_row("rollout_filter=none", "320", "1,312,052", "baseline")
    return drawn


def test_numbers_and_short_words_stay_whole_and_long_words_fold():
    _, heads, row, rest = printed(table())
    assert heads.split() == ["condition", "updates", "tokens", "status"]
    assert row.split() == ["rollout_filt", "320", "1,312,052", "baseline"]
    assert rest == "er=none"


def test_a_wide_terminal_shows_everything_on_a_line():
    assert printed(table(), width=80) == [
        "condition           policy updates    tokens status",
        "rollout_filter=none            320 1,312,052 baseline",
    ]


def test_an_id_is_never_cut():
    drawn = grid(("exp_id", "status"), whole=(0,), gap=1)
    drawn.add_row("kl_loss_coef=0.01-s0-1514878a44", "keep")
    assert printed(drawn, width=20)[1] == "kl_loss_coef=0.01-s0-1514878a44 keep"


def test_what_is_indented_wraps_and_is_not_cut():
    assert printed(indent(line("one two three four five six seven"), 4)) == [
        "    one two three four five",
        "    six seven",
    ]
    assert printed(indent(verbatim("x" * 40))) == [f"  {'x' * 40}"]
    assert printed(indent(table())) == [f"  {row}" for row in printed(table(), width=28)]
