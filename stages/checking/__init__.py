"""What can be wrong in params.yaml: one line for each fault, with its path there."""
