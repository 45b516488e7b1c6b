"""Commands that play: a person, a solver, a policy, or a trial before and after training."""
