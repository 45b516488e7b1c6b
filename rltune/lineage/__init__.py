"""The lineage table: rows, queries, noise, and the tables of other tools."""
