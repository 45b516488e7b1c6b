"""Training through a remote service that speaks the Tinker protocol."""
