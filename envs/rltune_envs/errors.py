"""Errors of the environments: each says what was given, what is allowed, and what to do."""


class EnvError(Exception):
    """Base of every error that an environment raises on purpose."""


class ContractError(EnvError):
    """An environment broke a clause of the contract; see `checks.check_env`."""


class LevelError(EnvError):
    """A level is malformed: not enclosed, no player, or unequal numbers of boxes and targets."""


class GenerationError(EnvError):
    """No level with the asked-for properties was found in the bounded number of attempts."""


class SearchLimitError(EnvError):
    """The solver reached its state budget before it could prove an answer."""


class TaskError(EnvError):
    """A task, or a row of a file, cannot be used: its own gold solution does not solve it."""


class RetrieverError(EnvError):
    """A retriever gave no answer: it is down, too slow, or speaks another protocol."""


class VerifierError(EnvError):
    """A score function raised or returned no finite number.

    Args:
        name: Which one.
        cause: What it did, in one line.

    """

    def __init__(self, name: str, cause: str) -> None:
        super().__init__(name, cause)

    def __str__(self) -> str:
        """Return `verifier NAME: cause`."""
        name, cause = self.args
        return f"verifier {name}: {cause}"


class ImportPathError(EnvError):
    """An import path such as `my_pkg.my_mod:MyEnv` names nothing that can be used."""
