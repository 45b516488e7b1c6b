"""What a sweep's records come to: means over seeds, and the one verdict about each condition."""
