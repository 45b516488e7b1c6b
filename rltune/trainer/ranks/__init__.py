"""One trial on several ranks: processes that share its weights, gradients and optimiser states."""
