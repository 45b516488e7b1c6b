"""Sweeps on Ray Tune: trials, books and signals. Only this room imports Ray."""
