"""Scores, intervals, contamination and the tables of trials, all without torch."""
