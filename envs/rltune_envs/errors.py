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


class CustomCodeError(EnvError):
    """Code of a user's raised, hung, or returned what it must not; see `guard`.

    Args:
        what: Which code: `env MyEnv.step()`.
        cause: What it did and where, in one line.

    """

    def __init__(self, what: str, cause: str) -> None:
        super().__init__(what, cause)

    @property
    def cause(self) -> str:
        """What it did, without its name."""
        return str(self.args[1])

    def __str__(self) -> str:
        """Return `WHAT: cause`."""
        return f"{self.args[0]}: {self.cause}"


class HungCodeError(CustomCodeError):
    """Code of a user's did not return within its time limit."""


class ImportPathError(EnvError):
    """An import path such as `my_pkg.my_mod:MyEnv` names nothing that can be used."""
