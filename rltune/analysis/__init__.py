"""Read a run folder: tables, means over seeds, and the one verdict about each condition."""
