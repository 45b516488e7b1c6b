"""A finding: the evidence of one finished sweep as a small folder with a page, to be published."""
