"""A trial: its set-up, its model, what is kept of it, and prediction with it."""
