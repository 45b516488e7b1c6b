"""Draw what analysis says: in the terminal, as figures, as HTML. No torch."""
