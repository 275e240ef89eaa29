"""Objectives: what is learnt from unlabelled text. A file without a leading underscore is an
objective.
"""
