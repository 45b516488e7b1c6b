"""The page of `rltune report`: what it says, that nothing breaks out of it, that it is bounded."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from figure_tables import tables
from jinja2 import UndefinedError
from lineage_rows import add_lineage
from replay_rows import LOST, SOLVED, add_replays, add_usual, replay, turn
from run_folders import CONTROL, SWEEP, TREATED, FolderWriter, finished_sweep

from rltune.report.html import replay_cards
from rltune.report.html.board import Tile, board_of, in_words
from rltune.report.html.gather import gather
from rltune.report.html.page import environment, page
from rltune.report.html.rebuild import rebuilt
from rltune.report.html.replays import choose, replays_of
from rltune.report.html.results import training_of
from rltune.spec.schema.trial import TrialConfig
from rltune.store.failure import TrialFailure
from rltune.store.files import write_json_atomic
from rltune.store.jsonl import append_jsonl
from rltune.store.run_folder import read_folder
from rltune.types import RowStatus
from rltune_envs.frozen_lake import FrozenLakeEnv
from rltune_envs.multihop_qa import MultihopQaEnv
from rltune_envs.sokoban import SokobanEnv

EVIL = "</script><img src=x onerror=alert(1)>\"'&"


class Reader(HTMLParser):
    """Collects what the checks below ask about."""

    def __init__(self):
        super().__init__()
        self.tags, self.ids, self.links, self.unnamed, self.open = [], [], [], [], []

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        if tag not in ("meta", "link", "br", "hr", "wbr"):
            self.open.append(tag)
        if "id" in attributes:
            self.ids.append(attributes["id"])
        if attributes.get("href", "").startswith("#"):
            self.links.append(attributes["href"][1:])
        has_name = attributes.get("aria-label") or attributes.get("aria-hidden") == "true"
        if tag in ("svg", "img") and not has_name:
            self.unnamed.append(attributes)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def read(text):
    reader = Reader()
    reader.feed(text)
    return reader


def page_of(writer):
    return page(gather(read_folder(writer.run)))


def words(text):
    """Return the text of a page as a reader without marks sees it."""
    body = re.sub(r"(?s)<(style|script)>.*?</\1>", "", text)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    writer = finished_sweep(tmp_path_factory.mktemp("finished"))
    add_usual(writer)
    return writer


@pytest.fixture(scope="module")
def text(finished):
    return page_of(finished)


def test_text_cannot_become_markup():
    def written(source, **values):
        return environment().from_string(source).render(values)

    assert written("<p>{{ x }}</p>", x="a < b & c") == "<p>a &lt; b &amp; c</p>"
    assert written("{{ x }}", x=EVIL) == (
        "&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;&#34;&#39;&amp;"
    )
    assert written('<a href="{{ x }}">', x='"><script>') == '<a href="&#34;&gt;&lt;script&gt;">'
    assert written("{{ x }}", x="a\x00b\u202ec\ud800\n") == "aU+0000bU+202EcU+D800\n"
    with pytest.raises(UndefinedError, match="'missing' is undefined"):
        written("{{ missing }}")


def test_boards_are_read_from_what_the_policy_read():
    compact = board_of(SOLVED, {"kind": "sokoban"})
    assert compact is not None
    assert [len(row) for row in compact] == [4, 4, 4, 4]
    assert compact[0] == (Tile.WALL, Tile.BOX_ON_TARGET, Tile.PLAYER, Tile.FLOOR)
    assert in_words(compact) == (
        "4 rows, 4 columns: box on target at row 1 column 2; player at row 1 column 3."
    )
    assert board_of("Reward: 1", {"kind": "sokoban"}) is None
    assert board_of(SOLVED[:-1], {"kind": "sokoban"}) is None  # 15 cells are no square
    assert board_of(SOLVED, {"kind": "multihop_qa"}) is None


@pytest.mark.parametrize("make", [SokobanEnv, FrozenLakeEnv])
@pytest.mark.parametrize("observation", ["grid", "grid_coord"])
def test_natural_prompts_show_the_same_board(make, observation):
    kind = "sokoban" if make is SokobanEnv else "frozen_lake"
    natural = make(prompt="natural", observation=observation).reset(seed=3)
    board = board_of(natural, {"kind": kind})
    assert board is not None
    compact = board_of(make(prompt="compact").reset(seed=3), {"kind": kind})
    inside = board if make is FrozenLakeEnv else tuple(row[1:-1] for row in board[1:-1])
    assert inside == compact


def test_other_symbols_mean_the_same():
    text = SokobanEnv(prompt="natural", symbols="letters").reset(seed=3)
    usual = SokobanEnv(prompt="natural").reset(seed=3)
    assert board_of(text, {"kind": "sokoban", "symbols": "letters"}) == board_of(
        usual, {"kind": "sokoban"}
    )


def test_the_page_is_well_formed_and_leads_nowhere_else(text):
    reader = read(text)
    assert reader.open == []
    assert len(reader.ids) == len(set(reader.ids))
    assert set(reader.links) <= set(reader.ids)
    assert reader.unnamed == []
    levels = [int(tag[1]) for tag, _ in reader.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))  # no heading skips a level
    assert not re.search(r"https?://", text)
    assert not [
        tag for tag, attributes in reader.tags if "src" in attributes or "style" in attributes
    ]
    assert not [a for _, a in reader.tags if any(name.startswith("on") for name in a)]


def test_the_same_files_give_the_same_bytes(finished, text):
    assert page_of(finished) == text


def test_the_page_says_what_the_tables_say(text):
    said = words(text)
    # Differences 2-6, 3-7, 3-8 of ten tasks: -0.4, -0.4, -0.5, mean -0.433
    assert "How strongly may the policy be tied to its start?" in said
    assert "Comparable: what ran differs in the axis alone. 6 of 6 trials finished." in said
    assert f"{TREATED} : below the control (n = 3, p =" in said
    assert "-0.433" in said
    assert "with coefficient 0 no reference forward pass is run" in said
    assert "random floor 0.184" in said
    assert "ceiling 0.95" in said
    assert "Seconds per training step: kl_loss_coef=0.0 2 s" in text  # 1.25 collect + 0.75 update
    assert f"{CONTROL}, seed 2: 0.800" in text


def test_figures_of_one_page_do_not_clash_and_keep_to_its_policy(text):
    charts = re.findall(r'(?s)<svg class="chart.*?</svg>', text)
    assert len(charts) == 4  # curves, comparison, heat map, budget
    for chart in charts:
        assert " style=" not in chart
        assert "<script" not in chart
        assert "xmlns" not in chart
        used = set(re.findall(r'(?:url\(|href=")#([\w-]+)', chart))
        assert used <= set(re.findall(r' id="([^"]+)"', text))
    assert [chart.partition('role="')[2].partition('"')[0] for chart in charts] == [
        "group", "group", "img", "img",
    ]  # fmt: skip
    assert 'aria-label="Learning curves. Line chart of held-out success over' in charts[0]


def test_without_matplotlib_the_page_is_whole_but_for_the_figures(finished, text, undrawn):
    bare = page_of(finished)
    assert "pip install 'rltune[figures]'" not in text
    assert "Install it with <code>pip install 'rltune[figures]'</code>" in bare
    assert '<svg class="chart' not in bare
    assert "data-toggle=" not in bare.partition("<script>")[0]
    tables = re.findall(r"<caption>(.*?)</caption>", text)
    assert re.findall(r"<caption>(.*?)</caption>", bare) == tables
    assert f"{CONTROL} 20 0.700 [0.452, 0.948] 3" in words(bare)
    assert f"{TREATED} 2 0.300 0.800 -0.500" in words(bare)


@pytest.mark.parametrize(("n", "thin_lines"), [(2, 4), (5, 0)])
def test_training_is_drawn_without_intervals_and_with_seeds_while_they_are_few(n, thin_lines):
    keys = [(f"k={i}", seed) for i in range(n) for seed in range(2)]
    steps = range(1, 101)
    curves = {key: {step: step / 100 for step in steps} for key in keys}
    flat = {key: dict.fromkeys(steps, 1.0) for key in keys}
    measures = [("actor/entropy", curves), ("actor/kl_loss", flat)]
    (drawn,) = training_of(tables(curves, extra=measures))
    assert drawn.title == "actor/entropy"
    assert drawn.svg is not None
    assert drawn.svg.count("<title>") == thin_lines
    assert 'fill-opacity="0.14"' not in drawn.svg
    assert 'role="img"' in drawn.svg


def test_without_matplotlib_training_is_a_table(undrawn):
    curves = {("k=0", seed): {step: step / 500 for step in range(1, 501)} for seed in range(2)}
    (drawn,) = training_of(tables(curves, extra=[("actor/entropy", curves)]))
    (numbers,) = drawn.numbers
    assert drawn.svg is None
    assert numbers.rows[0] == ["k=0", 1, "0.002", "–", 2]
    assert numbers.rows[-1] == ["k=0", 500, "1.000", "–", 2]
    assert len(numbers.rows) == 101  # every fifth of 500, and the last


def test_every_mark_of_a_seed_leads_to_its_trial(finished, text):
    places = dict(
        re.findall(r'<tr id="(trial-\d+)" tabindex="-1"><th scope="row"><code>([^<]+)', text)
    )
    marks = re.findall(r'<a data-c="\d" href="#(trial-\d+)" aria-label="([^,"]+), seed (\d)', text)
    assert len(marks) == 9  # six finals and three differences
    for place, condition, seed in marks:
        assert places[place] == finished.spec(condition, int(seed)).trial_id


def test_a_replay_has_its_turns_its_credit_and_its_end(text):
    reader = read(text)
    cards = [a for tag, a in reader.tags if tag == "article"]
    assert len(cards) == 8  # two conditions, two steps, a success and a failure
    card = re.search(r'(?s)<article.*?id="replay-1".*?</article>', text)
    assert card is not None
    said = words(card[0])
    assert said.count("Turn ") == 3
    assert "+0.50" in said
    assert "-1.00" in said
    assert "-1 to +0.5 over 2 tokens" in said
    assert "Solved. Reward 10.7 in 3 turns." in said
    # the strongest credit of the page is 1: 0.5 is in the third of five strengths
    assert 'class="t up3"' in card[0]
    assert 'class="t down5"' in card[0]
    assert "Board at the end. 4 rows, 4 columns: box on target at row 1 column 2" in card[0]


def test_nothing_of_strangers_becomes_markup(tmp_path):
    sweep = SWEEP.replace("title: KL constraint", f"title: {EVIL!r}".replace("\\'", "''"))
    writer = FolderWriter(
        tmp_path, sweep.replace("its start?", f"its start? {EVIL}".replace("'", ""))
    )
    spec = writer.spec(CONTROL, 0)
    writer.train(spec, {0: 4}, steps=1)
    evil = turn((EVIL, "\u202e\x00"), actions=[EVIL], observation=f"<information>Doc 1 "
                f"(Title: {EVIL}) {EVIL}</information>{EVIL}", given=EVIL)  # fmt: skip
    add_replays(writer, spec, [replay(turns=0, task_id=EVIL, failure_class=EVIL, closing=EVIL)
                               | {"turns": [evil], "success": False}])  # fmt: skip
    other = writer.spec(TREATED, 0)
    writer.fail(other, TrialFailure(RowStatus.CRASH, EVIL, step=3, attempt=1, traceback=EVIL))
    text = page_of(writer)
    reader = read(text)
    assert reader.open == []
    assert not [tag for tag, _ in reader.tags if tag == "img"]
    assert [tag for tag, _ in reader.tags if tag == "script"] == ["script"]
    assert "&lt;/script&gt;&lt;img src=x" in text
    assert "U+202EU+0000" in text


def test_what_failed_and_what_is_missing_is_said(tmp_path, undrawn):
    writer = FolderWriter(tmp_path)
    writer.finish(writer.spec(CONTROL, 0), {0: 4, 10: 5, 20: 6})
    failure = TrialFailure(RowStatus.CRASH, "out of memory", step=3, attempt=1, traceback="")
    writer.fail(writer.spec(TREATED, 0), failure)
    said = words(page_of(writer))
    assert "Not finished: there is no comparison to judge yet. 1 of 6 trials finished." in said
    assert f"{TREATED}, seed 0 at step 3 of 20: out of memory" in said
    assert "1 of 6 trials have a result." in said
    assert "Warnings (2) " in said  # the failure, and that the sweep is incomplete
    assert "No condition is compared: no seed of another condition than the control" in said
    assert f"{TREATED} : no verdict (1 of 3 seeds ended)." in said
    assert "No training episode is recorded yet." in said


def test_the_lineage_leads_from_the_root_to_the_best_and_names_what_is_missing(tmp_path, undrawn):
    writer = finished_sweep(tmp_path)
    assert "No lineage yet: results.tsv has no rows." in words(page_of(writer))
    root, crash, best = add_lineage(writer)
    with writer.run.results.open("a") as file:
        file.write("torn\n")
    page = page_of(writer)
    section = re.search(r'(?s)<section id="lineage".*?</section>', page)[0]
    chain = words(re.search(r"(?s)<ol.*?</ol>", section)[0])
    assert chain == (
        f" {root} baseline 0.500 no hypothesis {best} keep 0.600 (+0.100 against the best at that "
        "time) best a &lt;weak&gt; tie helps beyond noise "
    )
    said = words(section)
    assert "1 ancestor not kept, so left out." in said
    assert f"{crash} crash – – – – no memory" in said
    assert "All 3 rows of results.tsv" in said
    assert "1 unreadable line: rltune lineage repair lists them." in said


def test_a_confounded_sweep_says_so_first(tmp_path, undrawn):
    writer = finished_sweep(tmp_path)
    write_json_atomic(writer.run.comparability, {
        "ok": False, "errors": [{"rule": "S1", "severity": "error", "message": "two keys move.",
                                 "remedy": "Hold one.", "accepted_reason": None, "code": "S1"}],
        "warnings": [{"rule": "S8", "severity": "warning", "message": "k1 has no gradient.",
                      "remedy": "Take k2.", "accepted_reason": None, "code": "S8.k1_loss"}],
        "axis_table": [], "allow_confounded": "a demonstration",
    })  # fmt: skip
    said = words(page_of(writer))
    banner = "CONFOUNDED: more than the axis differs, so nothing follows. It ran anyway"
    assert said.index(banner) < said.index("What came out?")
    assert "a demonstration" in said
    assert f"{TREATED} : no verdict (confounded)" in said
    assert "S1 error two keys move. Remedy: Hold one." in said
    assert "S8.k1_loss warning k1 has no gradient." in said
    assert "hidden axis S8.k1_loss warning, neither remedied nor accepted: k1 has no" in said


def test_a_success_and_a_failure_early_and_late_are_chosen(finished):
    found = replays_of(read_folder(finished.run))
    assert [(r.spec.condition, r.step, r.success) for r in found[:4]] == [
        (CONTROL, 1, True), (CONTROL, 1, False), (CONTROL, 20, True), (CONTROL, 20, False),
    ]  # fmt: skip
    assert {replay.spec.seed for replay in found} == {0}


def test_an_outcome_that_neither_end_has_comes_from_between(tmp_path):
    writer = FolderWriter(tmp_path)
    spec = writer.spec(CONTROL, 0)
    writer.start(spec)
    rows = [
        replay(step=1, success=False),
        replay(step=5, success=True),
        replay(step=9, success=False),
    ]
    add_replays(writer, spec, rows)
    found = replays_of(read_folder(writer.run))
    assert [(r.step, r.success) for r in found] == [(1, False), (5, True), (9, False)]
    assert choose(found) == list(found)


def test_replays_that_do_not_fit_are_counted_and_every_condition_has_its_turn(
    finished, text, undrawn, monkeypatch
):
    one = len(re.search(r"(?s)<article.*?</article>", text)[0].encode())
    monkeypatch.setattr(replay_cards, "REPLAY_BYTES", int(3.5 * one))
    short = page_of(finished)
    assert "5 more replays not shown" in short
    assert f"{CONTROL} (control): 2 replays" in short
    assert f"{TREATED}: 1 replay<" in short


ENVS = {
    "sokoban": (SokobanEnv, {}),
    "frozen_lake": (FrozenLakeEnv, {"success_rate": 0.7}),
    "multihop_qa": (MultihopQaEnv, {"hops": [2]}),
}


def played(make, arguments, *, seed):
    """Return the line of episodes.jsonl of a perfect player, and what it saw."""
    env = make(prompt="compact", **arguments)
    env.noise_seed = 7
    seen, turns = [env.reset(seed=seed)], []
    while True:
        response = env.format_response(env.expert_actions() or ())
        step = env.step(response)
        seen.append(step.observation)
        told = {"is_valid": True, "n_invalid": 0, "n_over_limit": 0, "fault": ""}
        actions, reward = list(step.actions), step.reward
        turns.append({"response": response, "actions": actions, "reward": reward, **told})
        if step.terminated or step.truncated:
            break
    row = {"step": 1, "task_id": "t", "task_seed": seed, "group": 0, "member": 0, "kept": True,
           "success": step.success, "truncated": False, "noise_seed": 7,
           "reward": 1.0, "failure_class": "none", "auxiliary": {}, "fault": "",
           "turns": turns}  # fmt: skip
    return row, seen


@pytest.mark.parametrize("kind", ENVS)
def test_an_episode_is_played_again_from_its_seed_and_its_responses(finished, kind):
    make, arguments = ENVS[kind]
    env = {"kind": kind, "prompt": "compact", **arguments}
    config = TrialConfig.model_validate({"env": env, "policy": {"model": "tiny"}})
    spec = replace(finished.specs[0], config=config.model_dump())
    row, seen = played(make, arguments, seed=5)
    assert [found for _, found in rebuilt(spec, [row])] == [seen]
    unknown = [""] * len(seen)
    del row["noise_seed"]  # as a version recorded it that had none
    expected = seen if make(**arguments).is_deterministic else unknown
    assert [found for _, found in rebuilt(spec, [row])] == [expected]
    row |= {"noise_seed": 8}
    row["turns"][0]["actions"] = ["something else"]  # another version of the environment
    assert [found for _, found in rebuilt(spec, [row])] == [[""] * len(seen)]


def test_a_server_is_never_asked(finished):
    row, seen = played(MultihopQaEnv, {"hops": [2]}, seed=5)
    env = {"kind": "multihop_qa", "prompt": "compact", "retriever": "http://localhost:1"}
    spec = replace(finished.specs[0], config={**finished.specs[0].config, "env": env})
    assert [found for _, found in rebuilt(spec, [row])] == [[""] * len(seen)]


def test_an_old_folder_has_replays_without_credit(tmp_path, undrawn):
    writer = FolderWriter(tmp_path)
    spec = writer.spec(CONTROL, 0)
    writer.train(spec, {0: 4}, steps=1)
    row, seen = played(SokobanEnv, {}, seed=5)
    late = {**row, "step": 9, "success": False}
    faulty = {**row, "fault": "retriever: down", "success": False}
    for line in (faulty, row, {**row, "step": 4}, late):
        append_jsonl(writer.run.trial(spec.trial_id).episodes, line)
    found = replays_of(read_folder(writer.run))
    assert [(r.step, r.success, r.is_recorded) for r in found] == [
        (1, True, False),
        (9, False, False),
    ]
    assert [one.observation for one in found[0].turns] + [found[0].closing] == seen
    said = words(page_of(writer))
    assert "Played again from its responses; its credit was not recorded." in said
    assert "Credit: not recorded" in said


def test_boards_of_other_prompts_stay_text(tmp_path, undrawn):
    writer = FolderWriter(tmp_path)
    spec = writer.spec(CONTROL, 0)
    writer.train(spec, {0: 4}, steps=1)
    odd = replay() | {"turns": [turn(observation="Player: (1, 2)")], "closing": LOST[:-1]}
    add_replays(writer, spec, [odd])
    text = page_of(writer)
    assert "<pre>Player: (1, 2)</pre>" in text
    assert f"<pre>{LOST[:-1]}</pre>" in text
