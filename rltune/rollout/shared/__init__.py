"""One engine for the trials of a sweep, with an adapter for each."""
