"""The toy sweep."""

from toy_sweep import load, problems

__all__ = ["load", "problems"]
