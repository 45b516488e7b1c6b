"""Pure functions that other rooms share: masks, groups, random streams, statistics."""
