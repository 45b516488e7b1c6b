"""One question of any kind to an OpenAI-compatible service, by the judge's client and limits."""

from collections.abc import Sequence
from dataclasses import dataclass

from rltune.judge.background import in_background
from rltune.judge.budget import BudgetExhaustedError, Meter, Usage
from rltune.judge.completion import CallError, Reply
from rltune.judge.prompt import Message, encodable
from rltune.judge.replay import Replay
from rltune.judge.session import Log, Session
from rltune.judge.settings import JudgeSettings


@dataclass(frozen=True, slots=True)
class Answer:
    """What a service answered, or why it did not; the key is in neither."""

    text: str  # its reply; empty without one
    usage: Usage  # what the question cost, tries that failed included
    problem: str = ""  # why there is no whole reply, in a clause; empty when there is


def ask_service(
    settings: JudgeSettings,
    messages: Sequence[Message],
    *,
    usage: Usage | None = None,
    log: Log | None = None,
) -> Answer:
    """Return the answer to one question; a failure is an answer, too.

    Args:
        settings: Where the service is, and the limits.
        messages: The question; what no text can hold is replaced.
        usage: Of the questions before, which count against `max_calls` and `max_tokens`.
        log: Takes one record per call, as that of `LlmJudge.asking`.

    Raises:
        InputError: The client is not installed, or the key is not set.

    """
    settings.require_ready()
    before = usage or Usage()
    meter = Meter(
        before,
        max_calls=settings.max_calls,
        max_tokens=settings.max_tokens,
        section=settings.section,
    )
    session = Session(settings, meter, key=settings.key(), log=log, replay=Replay())
    sent = [{**one, "content": encodable(one["content"])} for one in messages]
    reply, problem = Reply("", None, is_cut=False), ""
    try:
        with in_background(session.reply(sent)) as answer:
            reply = answer()
    except TimeoutError:
        problem = f"no answer within {settings.deadline_s:g} s"
    except (BudgetExhaustedError, CallError) as error:
        problem = session.line(str(error))
    if reply.is_cut:
        problem = f"the answer was cut off after {settings.max_reply_tokens} tokens"
    cost = Usage(meter.usage.calls - before.calls, meter.usage.tokens - before.tokens)
    return Answer(reply.text, cost, problem)
