"""Connections of the `/retrieve` client end with what holds them; each ending has its own process.

A socket that is not closed is a ResourceWarning, which `-W error` prints while it ends.
"""

import json
import subprocess
import sys

import pytest
from patience import HANG_S

from rltune_envs.multihop_qa.bm25 import Bm25Retriever
from rltune_envs.multihop_qa.records import Passage
from rltune_envs.multihop_qa.server import RetrievalServer

pytestmark = pytest.mark.slow

CLIENT = """
import copy, gc, json, os, pickle, sys
import httpx
from rltune_envs.multihop_qa.http_retriever import HttpRetriever
url, endings, folder = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]

def used(client):
    assert client.search("ulm", k=1)[0].title == "Ulm"
    return client

exits = {}
for name, code in endings.items():
    if child := os.fork():
        exits[name] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        continue
    os.dup2(os.open(os.path.join(folder, name), os.O_CREAT | os.O_WRONLY), 2)
    exec(code)
    break
else:
    print(json.dumps(exits))
"""
ENDINGS = {
    "the end of the process": "kept = used(HttpRetriever(url))",
    "the last reference": "used(HttpRetriever(url)); gc.collect(); print('still runs')",
    "a pickled one": "kept = used(pickle.loads(pickle.dumps(used(HttpRetriever(url)))))",
    "a copied one": "first = used(HttpRetriever(url)); kept = used(copy.deepcopy(first))",
    "closed, used again": "kept = used(HttpRetriever(url)); kept.close(); used(kept)",
    "a copy outlives its model": (
        "first = used(HttpRetriever(url)); kept = copy.copy(first); del first; used(kept)"
    ),
    "searches of an environment": (
        "from rltune_envs.multihop_qa import MultihopQaEnv\n"
        "env = MultihopQaEnv(prompt='compact', retriever=url); env.reset(seed=1)\n"
        "assert 'town' in env.step('<search>Ulm</search>').observation"
    ),
    "more servers than are kept": (
        "from rltune_envs.multihop_qa import sources\n"
        "used(sources._retriever(sources.Server(url)))\n"
        "for i in range(sources._retriever.cache_info().maxsize):\n"
        "    sources._retriever(sources.Server(f'{url}/{i}'))\n"
        "gc.collect()"
    ),
    "a fork that asks, too": (
        "kept = used(HttpRetriever(url)); child = os.fork()\n"
        "used(kept)\n"
        "if child == 0: kept.close(); os._exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0; used(kept)"
    ),
}


@pytest.fixture(scope="module")
def url():
    with RetrievalServer(Bm25Retriever([Passage("Ulm", "Ulm is a town.")])) as server:
        yield server.url


@pytest.fixture(scope="module")
def ended(url, tmp_path_factory):
    """Return the exit code of each ending, a fork of one process, and what it wrote as errors."""
    folder = tmp_path_factory.mktemp("errors")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", CLIENT, url, json.dumps(ENDINGS), str(folder)],
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert (done.returncode, done.stderr) == (0, "")
    codes = json.loads(done.stdout.splitlines()[-1])
    return {name: (codes[name], (folder / name).read_text()) for name in ENDINGS}


@pytest.mark.parametrize("name", ENDINGS)
def test_nothing_is_left_open(ended, name):
    assert ended[name] == (0, "")
