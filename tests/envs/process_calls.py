"""Functions that tests call in a process of their own."""

import os
import re
import signal
import sys
import time


def double(number):
    return 2 * number


def pid(_):
    return os.getpid()


def prints(text):
    print(text)
    return len(text)


def down(_):
    return {}["gone"]


def runaway(text):
    return re.match(r"(a+)+$", text)


def writes_pid(file):
    with open(file, "w") as to:
        to.write(str(os.getpid()))


def runs_away_after_pid(file):
    writes_pid(file)
    runaway("a" * 60 + "b")


def sleeps(_):
    time.sleep(1e6)


def leaves(_):
    os._exit(7)


def exits(_):
    sys.exit(3)


def is_killed(_):
    os.kill(os.getpid(), signal.SIGKILL)


def forks(_):
    return os.fork() > 0


def closes_all_files(_):
    os.closerange(3, 256)
    time.sleep(1e6)


def starts_one_that_hangs(file):
    child = os.fork()
    if not child:
        time.sleep(1e6)
    with open(file, "w") as to:
        to.write(str(child))
    time.sleep(1e6)


def returns_a_function(_):
    return lambda: 1


async def late(_):
    return 1
