"""A checkpoint adapted to a task: its model, what it predicts, and what is kept of it."""
