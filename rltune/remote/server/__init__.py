"""A small Tinker server: torch on this machine behind the wire format of the Tinker SDK."""
