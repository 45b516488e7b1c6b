"""Connections of the `/retrieve` client end with what holds them; each test has its own process.

A socket that is not closed is a ResourceWarning, which `-W error` prints while it ends.
"""

import subprocess
import sys

import pytest
from patience import HANG_S

from rltune_envs.multihop_qa.bm25 import Bm25Retriever
from rltune_envs.multihop_qa.records import Passage
from rltune_envs.multihop_qa.server import RetrievalServer

CLIENT = """
import copy, gc, os, pickle, sys
from rltune_envs.multihop_qa.http_retriever import HttpRetriever
url = sys.argv[1]

def used(client):
    assert client.search("ulm", k=1)[0].title == "Ulm"
    return client
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


@pytest.mark.parametrize("name", ENDINGS)
def test_nothing_is_left_open(url, name):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", CLIENT + ENDINGS[name], url],
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert (done.returncode, done.stderr) == (0, "")
