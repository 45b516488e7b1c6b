"""Train one trial, from its config to its records. No Ray."""
