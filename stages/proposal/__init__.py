"""Proposes a study of a user's own files that fits the data, the machine and the time."""
