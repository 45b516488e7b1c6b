"""From the rewards of a step to the credit of every sampled token."""
