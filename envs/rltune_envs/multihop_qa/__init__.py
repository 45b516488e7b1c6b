"""Multi-hop question answering: a closed world, question files, retrieval, and the environment."""

from rltune_envs.multihop_qa.env import MultihopQaEnv

__all__ = ["MultihopQaEnv"]
