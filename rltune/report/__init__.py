"""What a run folder tells: status, audit, closing table, plan; and how it is drawn. No torch."""
