"""What can be wrong in params.yaml: a line for each fault, with its path there."""
