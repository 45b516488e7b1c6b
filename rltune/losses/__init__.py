"""Per-token losses, one module each, and `reduce`, the only place where tokens become a number."""
