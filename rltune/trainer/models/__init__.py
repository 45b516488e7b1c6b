"""Trained models outside their trial: exported folders with their cards."""
