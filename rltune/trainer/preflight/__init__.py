"""Checks before step 1: models, references, room for an answer, whether a step can teach."""
