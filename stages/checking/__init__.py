"""Checks of params.yaml: one line for each fault, with its path."""
