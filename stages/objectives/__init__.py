"""Objectives: what is learnt from unlabelled text. A file is an objective."""
