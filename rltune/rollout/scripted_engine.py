"""An engine that plays back given responses: for tests, and for replaying recorded episodes."""

from collections.abc import Callable, Sequence

from rltune.rollout.engine import Batching, Completion, Request, SamplingParams, cut_reason
from rltune.types import StopReason

Script = Callable[[Request], Sequence[int]]


class ScriptedEngine:
    """Answers each request with what `script` returns for it, cut to the limits.

    Args:
        script: Maps a request to the token ids to answer with, end token included; at least one.
        end_ids: Tokens that end a response.
        logprob: Log-probability to report for every token.

    """

    def __init__(self, script: Script, *, end_ids: Sequence[int], logprob: float = 0.0) -> None:
        self._script = script
        self._end_ids = frozenset(end_ids)
        self._logprob = logprob

    def generate(self, requests: Sequence[Request], params: SamplingParams) -> list[Completion]:
        """Answer from the script."""
        return [self._answer(request, params) for request in requests]

    def sync(self) -> None:
        """Do nothing: a script has no weights."""

    def release(self) -> None:
        """Do nothing: a script holds nothing."""

    def close(self) -> None:
        """Do nothing: a script holds nothing."""

    def _answer(self, request: Request, params: SamplingParams) -> Completion:
        room = min(params.max_tokens, params.max_context - len(request.prompt_ids))
        if room <= 0:
            return Completion((), (), StopReason.CONTEXT)
        script = list(self._script(request))
        if not script:
            raise ValueError(
                "the script answered with no token; a policy always samples at least one"
            )
        ids: list[int] = []
        for token in script[:room]:
            ids.append(token)
            if token in self._end_ids:
                break
        ended = bool(ids) and ids[-1] in self._end_ids
        reason = StopReason.STOP if ended else cut_reason(len(ids), params)
        return Completion(tuple(ids), (self._logprob,) * len(ids), reason)


class StreamingScript(ScriptedEngine):
    """The same, as an engine that takes requests at any time; each `advance` makes a token of all.

    Args:
        script: As there, and so `end_ids` and `logprob`.
        end_ids: Tokens that end a response.
        logprob: Log-probability to report for every token.
        batching: When a request may join others.

    """

    def __init__(
        self,
        script: Script,
        *,
        end_ids: Sequence[int],
        logprob: float = 0.0,
        batching: Batching = Batching.CONTINUOUS,
    ) -> None:
        super().__init__(script, end_ids=end_ids, logprob=logprob)
        self.batching = batching
        self._under_way: dict[int, tuple[int, Completion]] = {}  # passes until its end

    def submit(self, requests: Sequence[Request], params: SamplingParams) -> None:
        """Take requests."""
        for request in requests:
            completion = self._answer(request, params)
            self._under_way[request.conversation] = len(completion.token_ids), completion

    def advance(self) -> list[tuple[int, Completion]]:
        """Make one token of each."""
        ended = [(name, one) for name, (left, one) in self._under_way.items() if left <= 1]
        self._under_way = {
            name: (left - 1, one) for name, (left, one) in self._under_way.items() if left > 1
        }
        return ended

    def abandon(self) -> None:
        """Drop the requests under way."""
        self._under_way = {}
