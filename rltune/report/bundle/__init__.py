"""A bundle: the records of runs with their findings, as one zip that another machine verifies.

The same runs and the same command give the same bytes. What names a machine or its folders stays
out, and a file that holds a secret is refused.
"""
