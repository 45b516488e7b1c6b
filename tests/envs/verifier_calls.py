"""Score functions of `env: verified`, good and bad, that tests call in a process of their own."""

import math
import os
import re
import time


def nan(prompt, response, row):
    return math.nan


def none(prompt, response, row):
    return None


def two(prompt, response, row):
    return 2.0


def raises(prompt, response, row):
    return row["nothing"]


def hangs(prompt, response, row):
    time.sleep(1e6)


def runaway(prompt, response, row):
    return re.match(r"(a+)+$", "a" * 60 + "b") is None


hangs.time_limit_s = runaway.time_limit_s = 0.2


def crashes(prompt, response, row):
    os._exit(7)


def forks(prompt, response, row):
    if (child := os.fork()) == 0:
        return 0.0
    os.waitpid(child, 0)
    return 1.0


def forks_here(prompt, response, row):
    return forks(prompt, response, row)


forks_here.in_process = False


def changes_the_row(prompt, response, row):
    row["answer"] = response
    return 1.0


def process(prompt, response, row):
    return float(os.getpid() != int(response))


def thread(prompt, response, row):
    return float(os.getpid() == int(response))


thread.in_process = False


def huge(prompt, response, row):
    return 10**5000


def two_arguments(prompt, response):
    return 1.0


async def waits(prompt, response, row):
    return 1.0


class Unwritable(float):
    def __repr__(self):
        raise RuntimeError("no text")


def unwritable(prompt, response, row):
    return Unwritable(3)


def right(prompt, response, row):
    return prompt == "1 + 1?" and response == row["answer"]
