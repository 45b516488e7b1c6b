"""Studies: sweeps that build on each other, what is due next, and what is promoted."""
