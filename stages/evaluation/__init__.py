"""Scores, intervals, contamination, likeness and the tables of trials, all without torch."""
