"""Advantage estimators, one module each. They estimate; whitening is `rltune.maths.masked`."""
