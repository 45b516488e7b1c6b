"""S1 to S9 before a run, A1 to A8 after it: the proof that only the axis moved."""
