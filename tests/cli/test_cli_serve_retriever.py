"""`rltune serve-retriever` as a person starts it: a process, a line with its address, a signal."""

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from patience import HANG_S

from rltune_envs.multihop_qa.http_retriever import HttpRetriever
from rltune_envs.multihop_qa.records import Passage
from rltune_envs.multihop_qa.world import World

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-c", "from rltune.cli import main; main()", "serve-retriever"]


def write_corpus(folder, n=3):
    path = folder / "wiki.jsonl"
    path.write_text("".join(f'{{"title": "Town {i}", "text": "Number {i}."}}\n' for i in range(n)))
    return path


@contextmanager
def served(folder, *options):
    """Start the command at a free port; give the process and its address; end it if it runs on."""
    process = subprocess.Popen(
        [*COMMAND, "--port", "0", *map(str, options)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'envs'}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


@pytest.mark.parametrize(
    "stop", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_it_serves_a_corpus_until_a_signal_and_ends_with_0(tmp_path, stop):
    with (
        served(tmp_path, "--corpus", write_corpus(tmp_path)) as (process, url),
        HttpRetriever(url, retries=0) as client,
    ):
        assert client.search("town 2", k=1) == (Passage("Town 2", "Number 2."),)
        process.send_signal(stop)  # while a connection is open
        out, err = process.communicate(timeout=HANG_S)
    assert (process.returncode, out) == (0, "")
    assert err == f"Serving 3 passages of {tmp_path / 'wiki.jsonl'}. Stop with Ctrl-C.\n"


@pytest.mark.slow
def test_it_serves_the_closed_world(tmp_path):
    passage = World(seed=5, passages=300).passages[77]
    with served(tmp_path, "--world-seed", 5, "--world-passages", 300) as (process, url):
        with HttpRetriever(url, retries=0) as client:
            assert client.search(passage.title, k=1) == (passage,)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 0
    assert err == "Serving 300 passages of the closed world 5. Stop with Ctrl-C.\n"


@pytest.mark.slow
def test_it_serves_the_passages_of_questions_once_each(tmp_path):
    context = [["Ulm", ["A town."]], ["Bonn", ["A city."]]]
    rows = [
        {"_id": str(i), "question": "Where?", "answer": "Ulm", "type": "bridge",
         "supporting_facts": [["Ulm", 0]], "context": context}
        for i in range(2)
    ]  # fmt: skip
    (tmp_path / "q.json").write_text(json.dumps(rows))
    with served(tmp_path, "--questions", "q.json") as (process, url):
        with HttpRetriever(url, retries=0) as client:
            assert client.search("town", k=3) == (Passage("Ulm", "A town."),)
        process.send_signal(signal.SIGTERM)
        assert "Serving 2 passages of q.json." in process.communicate(timeout=HANG_S)[1]


def test_a_taken_port_is_refused(rltune, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = rltune(
            "serve-retriever", "--corpus", str(write_corpus(tmp_path)), "--port", str(port)
        )
    assert (result.code, result.out, result.err) == (
        2,
        "",
        f"error: --port {port}: another program listens at 127.0.0.1:{port} already. Stop it, or "
        "give another port; 0 takes a free one.\n",
    )


def test_a_host_of_another_machine_is_refused(rltune, tmp_path):
    result = rltune(
        "serve-retriever", "--corpus", str(write_corpus(tmp_path)), "--host", "192.0.2.1"
    )
    assert (result.code, result.err) == (
        2,
        "error: --host 192.0.2.1 --port 8000: cannot listen there: Cannot assign requested "
        "address. 127.0.0.1 is this machine alone, 0.0.0.0 all of its addresses.\n",
    )


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--corpus", "none.jsonl"), "none.jsonl: cannot be read: No such file or directory"),
        (("--corpus", "a", "--questions", "b"),
         "--corpus, --questions: both were given. Give one of the two."),
        (("--questions", "q.json", "--file-format", "x"),
         "file_format is 'x'; choose one of auto, hotpotqa, musique, 2wiki, "
         "bamboogle, golden_answers, hotpotqa_fullwiki."),
        (("--questions", "bamboogle.json"),
         "bamboogle.json: its questions have no passages. Give --corpus."),
        (("--index", "x"),
         "--index: has no effect: BM25 needs neither. Give --dense MODEL, or leave it."),
        (("--world-passages", "5"), "passages: 5 is not possible; a closed world has 100 to 7000 "
         "passages, as there are names for"),
        (("--corpus", "blank.jsonl"),
         "passages: there is no word in the 1 given; BM25 needs at least one passage with text"),
    ],
)  # fmt: skip
def test_refused_input_is_one_whole_line(rltune, tmp_path, arguments, line):
    (tmp_path / "bamboogle.json").write_text('[{"Question": "Who?", "answer": ["Otto"]}]')
    (tmp_path / "blank.jsonl").write_text('{"title": "-", "text": "..."}')
    result = rltune("serve-retriever", *arguments)
    assert (result.code, result.out, result.err) == (2, "", f"error: {line}\n")


def test_help_has_an_example(rltune):
    result = rltune("serve-retriever", "--help")
    assert result.code == 0
    assert "\n  Example:\n    rltune serve-retriever --port 0\n" in result.out


@pytest.mark.slow
def test_it_serves_by_vectors_and_keeps_their_index(tmp_path):
    pytest.importorskip("faiss", reason="pip install 'rltune[dense]'")
    corpus = write_corpus(tmp_path)
    for has_bar in (True, False):  # built by the first, read by the second
        with served(tmp_path, "--corpus", corpus, "--dense", "hashing") as (process, url):
            with HttpRetriever(url, retries=0) as client:
                assert client.search("town 2", k=1) == (Passage("Town 2", "Number 2."),)
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=HANG_S)
        assert process.returncode == 0
        assert ("Embedding passages" in err and "3/3" in err) == has_bar
        assert err.endswith(f"Serving 3 passages of {corpus} by hashing. Stop with Ctrl-C.\n")
    folder = tmp_path / "wiki.jsonl.dense"
    assert sorted(path.name for path in folder.iterdir()) == ["index.json", "vectors.f32"]
