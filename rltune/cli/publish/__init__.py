"""Commands that make evidence to send, and that prove it."""
