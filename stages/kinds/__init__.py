"""Kinds of labelled rows: their columns, answers, metrics and form as text, without torch.

Each file without a leading underscore is a kind. ``_kind.py`` says how to add one; no other file
has to change.
"""
