"""Rollouts of the next step, sampled while a step trains (`rollout.ahead`)."""
