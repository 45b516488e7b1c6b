"""Compare the gradients of two conditions on fixed batches: are they one run (S6)?"""
