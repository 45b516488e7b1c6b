"""What seeds that separated nothing could show, said alike by the terminal, page and finding."""

import re
from dataclasses import replace

import pytest
from run_folders import CONTROL, TREATED, FolderWriter, finished_sweep
from test_report_finding import CODE, drawn_once, problems_of, replace_in

from rltune.analysis.audit import audit_folder
from rltune.analysis.summary import close_sweep
from rltune.errors import StoreError
from rltune.report.finding.collect import collect
from rltune.report.finding.files import read_finding, write_finding
from rltune.report.finding.page import page
from rltune.report.html import page as html
from rltune.report.html.gather import gather
from rltune.store.files import read_json, write_json_atomic
from rltune.store.run_folder import read_folder, read_records

assert drawn_once  # used by all tests here, too

# differences -0.1, 0.1 and 0: s = 0.1, and three pairs see 3.264 of it; at 2 degrees of freedom the
# true spread is at most 6.285 times s, and never below one of ten tasks
LINE = (
    "Not separable is not equal: 3 seeds show a difference of 0.326 or more with 80 % power "
    "(0.326 to 2.05, as far as the spread is known)."
)


@pytest.fixture(scope="module")
def writer(tmp_path_factory):
    writer = FolderWriter(tmp_path_factory.mktemp("undecided"))
    for seed, last in enumerate((5, 7, 6)):
        writer.finish(writer.spec(CONTROL, seed), {0: 4, 10: 5, 20: 6})
        writer.finish(writer.spec(TREATED, seed), {0: 4, 10: 5, 20: last})
    return writer


@pytest.fixture
def folder(writer, tmp_path):
    out = tmp_path / "kl"
    write_finding(collect(read_folder(writer.run), CODE, name="kl"), out)
    return out


def first_form(folder):
    """Make a finding one of form 1, as it was written."""
    finding = read_finding(folder)
    manifest = {key: value for key, value in finding.manifest.items() if key != "page"}
    write_finding(replace(finding, manifest=manifest), folder)


def test_terminal_page_and_finding_say_the_same(writer, undrawn):
    run = read_folder(writer.run)
    read = read_records(run)
    assert close_sweep(run, read.records, audit_folder(run, read)).power == LINE
    text = re.sub(r"<[^>]+>", "", html.page(gather(run))).replace("\u00a0", " ")
    assert text.count(LINE) == 1
    parts = page(collect(run, CODE, name="kl")).split("\n\n")
    assert parts[parts.index(LINE) - 1].startswith("- `kl_loss_coef=0.1` ends **not separable")


def test_where_every_condition_is_decided_none_says_it(tmp_path, undrawn):
    run = read_folder(finished_sweep(tmp_path).run)
    assert "Not separable" not in html.page(gather(run))
    assert "Not separable" not in page(collect(run, CODE, name="kl"))


def test_another_number_on_the_page_is_found(folder):
    assert problems_of(folder) == []
    replace_in("index.md", "0.326 or more", "0.226 or more")(folder)
    assert any("a difference of 0.226 or more" in text for text in problems_of(folder))


def test_a_finding_of_the_first_form_holds_until_it_is_drawn_again(folder):
    first_form(folder)
    assert LINE not in (folder / "index.md").read_text()
    assert problems_of(folder) == []
    again = read_finding(folder)
    assert LINE not in page(again)
    assert LINE in page(replace(again, manifest={**again.manifest, "page": 2}))


@pytest.mark.parametrize("form", [0, 4, "2", None])
def test_another_form_is_of_another_rltune(folder, form):
    manifest = read_json(folder / "manifest.json")
    write_json_atomic(folder / "manifest.json", manifest | {"page": form})
    with pytest.raises(StoreError, match=r"manifest\.json: has a page of form .*or a later one\."):
        read_finding(folder)
