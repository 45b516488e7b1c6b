"""Sweep files: schema, loading, resolution, identity, comparability, audit. No torch, no Ray."""
