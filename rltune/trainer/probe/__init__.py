"""Gradients of two conditions on fixed batches: whether they are one run (S6)."""
