"""Show what analysis says: in the terminal, as tables, figures and HTML. No torch."""
