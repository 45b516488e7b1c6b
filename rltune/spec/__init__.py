"""Sweep files: schema, loading, resolution to full configs, identity. No torch, no Ray."""
