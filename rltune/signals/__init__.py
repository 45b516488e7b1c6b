"""Inputs of an advantage stage besides rewards; pure functions of tensors and texts."""
