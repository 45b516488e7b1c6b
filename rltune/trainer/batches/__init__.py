"""How a batch is cut: mini-batches of an optimiser step, micro-batches of a forward pass."""
