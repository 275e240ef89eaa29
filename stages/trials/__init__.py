"""A trial: its set-up, its run, what is kept of it, and prediction with it."""
