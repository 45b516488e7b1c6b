"""Problems of a file and a verifier: one turn each, or several with feedback."""

from rltune_envs.verified_task.env import VerifiedTaskEnv

__all__ = ["VerifiedTaskEnv"]
