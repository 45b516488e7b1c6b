"""What is asked before step 1: memory, models, whether anything can be learned."""
