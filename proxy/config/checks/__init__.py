"""What is wrong between values that are each right: one module per section of the file."""
