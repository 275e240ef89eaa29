"""Training: the one loop, its optimiser, its checkpoints, and how it is tracked."""
