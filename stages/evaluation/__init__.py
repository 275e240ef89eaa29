"""Scores, intervals and contamination, and the tables that trials are recorded in, without
torch.
"""
