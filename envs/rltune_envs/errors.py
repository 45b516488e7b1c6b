"""Errors of the environments: each says what was given, what is allowed and what to do."""


class EnvError(Exception):
    """Base of every error that an environment raises on purpose."""


class ContractError(EnvError):
    """An environment broke a clause of the contract; see `checks.check_env`."""


class ProtocolError(EnvError):
    """An environment was asked for what it does not have; see `protocols`.

    Args:
        env: Its class.
        methods: Names of the methods that it lacks.

    """

    def __init__(self, env: str, methods: tuple[str, ...]) -> None:
        super().__init__(env, methods)

    @property
    def lack(self) -> str:
        """What it lacks: `MyEnv has no expert_actions()`."""
        env, methods = self.args
        return f"{env} has no {' and no '.join(f'{name}()' for name in methods)}"

    def __str__(self) -> str:
        """Return what it lacks, and what to do."""
        return f"{self.lack}. Define {'it' if len(self.args[1]) == 1 else 'them'}"


class LevelError(EnvError):
    """A level is malformed: not enclosed, no player, or unequal numbers of boxes and targets."""


class GenerationError(EnvError):
    """No level with the requested properties was found within the allowed attempts."""


class SearchLimitError(EnvError):
    """The solver reached its state budget before it could prove an answer."""


class TaskError(EnvError):
    """A task, or a row of a file, cannot be used: its own gold solution does not solve it."""


class RetrieverError(EnvError):
    """A retriever did not answer: it is down, too slow, or speaks another protocol."""


class _CausedError(EnvError):
    """Something failed for a cause; can be pickled."""

    def __init__(self, what: str, cause: str) -> None:
        super().__init__(what, cause)

    @property
    def cause(self) -> str:
        """The cause, in one line."""
        return str(self.args[1])

    def __str__(self) -> str:
        """Return `WHAT: cause`."""
        return f"{self.args[0]}: {self.cause}"


class VerifierError(_CausedError):
    """A score function (`what` is its name) raised, or returned no finite number."""

    def __str__(self) -> str:
        """Return `verifier NAME: cause`."""
        return f"verifier {super().__str__()}"


class CustomCodeError(_CausedError):
    """Custom code (`what`: `env MyEnv.step()`) raised, hung, or returned a bad result; see `guard`.

    The cause says where.
    """


class HungCodeError(CustomCodeError):
    """Custom code did not return within its time limit."""


class ImportPathError(EnvError):
    """An import path such as `my_pkg.my_mod:MyEnv` names nothing that can be used."""
