import re

from cases import each
from hypothesis import given
from hypothesis import strategies as st

from rltune.report.markdown import code_id, cut, inline, table, within_budget

HOSTILE = [
    ("a|b", r"a\|b"),
    ("``` js\nx", r"\`\`\` js ⏎ x"),
    ("<b>&amp;</b>", r"&lt;b&gt;\&amp;&lt;/b&gt;".replace(r"\&", "&amp;")),
    ("[x](http://e)", r"\[x\](http:\/\/e)"),
    ("~~gone~~ *b* _i_", r"\~\~gone\~\~ \*b\* \_i\_"),
    ("kl_loss_coef=0.1", "kl_loss_coef=0.1"),
    ("a\r\nb\rc\n\n", "a ⏎ b ⏎ c"),
    ("\x1b[31m\u202egnp\u200b", r"U+001B\[31mU+202EgnpU+200B"),
    ("# head", r"\# head"),
    ("back\\slash", r"back\\slash"),
    ("$x$ !", r"\$x\$ \!"),
]


@each(("text", "shown"), HOSTILE)
def test_what_strangers_wrote_stays_text(text, shown):
    assert inline(text, 1000) == shown


@given(st.text())
def test_any_text_is_one_line_without_a_way_out(text):
    shown = inline(text, 200)
    assert len(shown.splitlines()) <= 1
    assert not re.search(r"(?<!\\)(?:\\\\)*[|`<>*\[\]~]", shown)


def test_what_is_cut_is_said():
    assert cut("abcdef", 6) == "abcdef"
    assert cut("abcdefg", 6) == "abcdef… (6 of 7 characters)"
    assert inline("|" * 7, 6) == "\\|" * 6 + "… (6 of 7 characters)"


def test_an_id_is_shown_as_it_is_stored_and_an_odd_one_is_escaped():
    assert code_id("q-1/kl=0.1-s0-ab.a2") == "`q-1/kl=0.1-s0-ab.a2`"
    assert code_id("a`|b") == r"a\`\|b"
    assert code_id("a" * 201) == "a" * 200 + "… (200 of 201 characters)"


def test_a_table_and_its_budget():
    assert table(["a", "b"], [["1", "2"]]) == ["| a | b |", "| --- | --- |", "| 1 | 2 |"]
    assert within_budget(["x" * 9] * 3, 30, "rows") == ["x" * 9] * 3
    assert within_budget(["x" * 9] * 3, 29, "rows")[2:] == ["", "1 more rows not shown for length."]
    assert within_budget(["x" * 9], 1, "rows") == ["x" * 9]
    assert within_budget(["漢" * 3] * 2, 19, "rows")[0] == "漢漢漢"  # 3 x 3 bytes and a newline
    assert "1 more rows not shown" in within_budget(["漢" * 3] * 2, 19, "rows")[2]
