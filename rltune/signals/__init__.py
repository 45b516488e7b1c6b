"""What an advantage stage needs beyond rewards; pure functions of tensors and texts."""
