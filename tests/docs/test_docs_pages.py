"""What the pages say of the code is true of the code: messages, warnings, metrics, links."""

import re
from functools import cache
from pathlib import Path

import pytest
from cases import each
from literals import ROOT, literals
from PIL import Image

from rltune.analysis.stats import Estimate
from rltune.analysis.verdict_words import CONTROL, SAME, Verdict
from rltune.comparability.check import check_sweep
from rltune.comparability.findings import RULES
from rltune.spec.expand import expand
from rltune.spec.load import load_sweep

DOCS = ROOT / "docs"
GROUPS = (
    "rollout|response_length|heldout|actor|critic|ig|adca|planning|sepa|rollout_corr|collapse"
    "|budget|perf|timing_s|early_stopped"
)
METRIC = re.compile(rf"({GROUPS})/[\w…]+(/[\w…]+)*")


def messages():
    """Return every message in the first column of the tables of troubleshooting.md."""
    lines = (DOCS / "troubleshooting.md").read_text(encoding="utf-8").splitlines()
    cells = [line.split(" | ")[0] for line in lines if line.startswith("| `")]
    quoted = [text for cell in cells for text in re.findall(r"`([^`]+)`", cell)]
    return [text for text in quoted if " " in text]


def test_there_are_many_messages():
    assert len(messages()) > 60


@cache
def said():
    """Return the literals of the code as one text, which is searched much faster."""
    return "\0".join(literals())


def is_said(message):
    """Tell whether a literal of the code holds a message; `…` stands for what is filled in."""
    fixed = message.strip("… ").split("…")
    return re.search("[^\0]*".join(map(re.escape, fixed)), said()) is not None


def test_every_quoted_message_is_one_of_the_code():
    assert [message for message in messages() if not is_said(message)] == []


def test_a_message_that_nobody_says_is_found_out():
    assert not is_said("… is not a sandwich.")


def test_every_hidden_axis_is_on_the_page_of_comparability():
    coded = {text for text in literals() if re.fullmatch(r"S8\.[a-z0-9_]+", text)}
    page = (DOCS / "comparability.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(S8\.\w+)` \|", page, re.MULTILINE)
    assert sorted(coded) == sorted(rows)
    assert len(rows) > 9


def test_every_metric_of_the_code_is_defined():
    page = (DOCS / "metrics.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1:] for line in page.splitlines() if line.startswith("| `")]
    names = {name: row for row in rows for name in re.findall(r"`([^`]+)`", row[0])}
    coded = {text for text in literals() if METRIC.fullmatch(text)}
    assert len(coded) > 60
    assert {name for name in coded if not is_defined(name, names)} == set()


def is_defined(metric, names):
    """Tell whether a row defines a metric; a row `x/*` names what may stand for the star."""
    if f"{metric}/*" in names:  # a stem, to which mean, max and min are added
        return True
    wanted = re.compile(re.escape(metric).replace("…", ".+"))
    for name, row in names.items():
        known = re.escape(name).replace(r"\*", r"([\w…]+)")
        found = re.fullmatch(re.sub(r"<\w+>", r"[\\w…]+", known), metric)
        if wanted.fullmatch(name) or (found and all(_is_told(w, row) for w in found.groups())):
            return True
    return False


def _is_told(word, row):
    return "…" in word or re.search(rf"`\w*{re.escape(word)}`", " ".join(row[1:])) is not None


def test_a_metric_without_a_row_is_found_out():
    names = {"adca/judge_*": ["", "share", "`judged_rate`"], "ig/turn_<k>/mean": ["", "", ""]}
    assert is_defined("adca/judge_judged_rate", names)
    assert not is_defined("adca/judge_mood_rate", names)
    assert is_defined("ig/turn_…/mean", names)
    assert not is_defined("ig/turn_…/max", names)


def test_readme_links_to_files_that_are_there():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", readme)
    assert len(links) > 5
    assert [link for link in links if not Path(ROOT / link).exists()] == []


def test_the_picture_of_the_readme_says_its_verdicts_in_the_words_of_the_code():
    described = Image.open(DOCS / "img" / "figure-comparison.png").text["Description"]
    numbers = re.findall(r"n = (\d+), Holm p = ([\d.]+), .*? p = ([\d.]+); ([\d,]+) ", described)
    assert len(numbers) == 2
    for n, p_holm, p, needed in numbers:
        verdict = Verdict(
            condition="kl_loss_coef=0.1", rival=CONTROL, word=SAME, n=int(n), planned=int(n),
            step=20, planned_steps=20, difference=Estimate(0.0, int(n), None), p=float(p),
            p_holm=float(p_holm), comparisons=len(numbers), needed=int(needed.replace(",", "")),
        )  # fmt: skip
        assert verdict.sentence in described


def test_the_readme_stays_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 150


PAGES_WITH_A_SWEEP = ("README.md", "docs/sweep-file.md")


@pytest.mark.parametrize("page", PAGES_WITH_A_SWEEP)
def test_a_sweep_of_five_lines_is_one(page, tmp_path):
    blocks = re.findall(r"```yaml\n(name: .*?)```", (ROOT / page).read_text(encoding="utf-8"), re.S)
    (text,) = [block for block in blocks if len(block.splitlines()) == 5]
    path = tmp_path / "my-entropy.yaml"
    path.write_text(text, encoding="utf-8")
    report = check_sweep(load_sweep(path))
    assert {finding.rule for finding in report.errors} == {"S3"}  # which says what to write


NEW_IDS = (
    "a change of the config gave new ids: write these ones into README.md, docs/ and rltune/cli/"
)


@pytest.mark.parametrize("name", ["kl", "quickstart"])
def test_the_ids_on_the_pages_are_those_of_the_shipped_sweeps(name):
    loaded = load_sweep(ROOT / "sweeps" / f"{name}.yaml")
    pages = [ROOT / "README.md", *DOCS.glob("*.md"), *(ROOT / "rltune" / "cli").glob("*.py")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    folders = set(re.findall(rf"(?<![\w-]){name}-[0-9a-f]{{8}}", text))
    assert folders == {loaded.run_name}, NEW_IDS
    trials = [spec.trial_id for spec in expand(loaded)]
    below = re.findall(rf"{loaded.run_name}/\n? *trials/(kl_loss_coef=[^/\s]+)/", text)
    blocks = re.findall(rf"{loaded.run_name}/\n(?:  .*\n)*?  trials/([^/\s]+)/", text)
    assert below or blocks
    assert set(below) | set(blocks) <= set(trials), f"{NEW_IDS}: {trials[:3]}"


def test_the_ids_of_the_repetition_are_those_of_its_command():
    page = (DOCS / "rerun.md").read_text(encoding="utf-8")
    (words,) = re.findall(r"^\$ rltune sweep (.*)$", page, re.MULTILINE)
    overrides = re.findall(r"--set (\S+)", words)
    loaded = load_sweep(ROOT / words.split()[0], overrides=overrides, seeds=[0, 1])
    trial = next(iter(expand(loaded))).trial_id
    assert f"\n{trial}: reproduced" in page, NEW_IDS
    assert f"/{loaded.run_name}/reruns/0001/{trial}," in page, NEW_IDS


@each("rule", RULES)
def test_each_rule_says_what_it_proves_and_what_it_cannot(rule):
    page = (DOCS / "comparability.md").read_text(encoding="utf-8")
    sections = [
        part
        for part in page.split("\n## ")
        if re.search(rf"\(.*\b{rule}\b.*\)", part.splitlines()[0])
    ]
    text = "\n".join(sections)
    assert re.search(r"\*\*What (it proves|they prove)\.\*\*", text)
    assert re.search(r"\*\*What (it|they) cannot prove\.\*\*", text)
