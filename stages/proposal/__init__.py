"""A study for one's own files: what they hold, and what fits the machine and the time."""
