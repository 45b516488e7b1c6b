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
