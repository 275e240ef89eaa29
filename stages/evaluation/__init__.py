"""Scores, intervals, contamination, likeness, and the tables that trials are recorded in, without
torch.
"""
