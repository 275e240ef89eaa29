"""Objectives: the losses of pretraining on unlabelled text. A file without a leading underscore is
an objective.
"""
