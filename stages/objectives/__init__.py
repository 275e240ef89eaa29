"""Objectives: the losses of pretraining on unlabelled text. Each file without a leading underscore
defines an objective.
"""
