"""Figures of a sweep: data from the exported tables alone (`data_*`), then drawing (`draw_*`)."""
