"""Episodes: engines sample, environments answer, token ids stay as sampled."""
