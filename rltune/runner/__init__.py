"""Sweeps on Ray Tune: trials, recorder and signals. Only this room imports Ray."""
