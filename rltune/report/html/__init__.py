"""The report of a sweep as one HTML file that needs no network: `rltune report`.

Data comes from the tables of `rltune export` and the figures' data; here it is only written down.
"""
