"""What a sweep will need: memory, compute, time left."""
