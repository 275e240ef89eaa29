"""Kinds of labelled rows: columns, answers, metrics and their form as text, without torch.

A file without a leading underscore is a kind. To add one, see ``_kind.py``: nothing else changes.
"""
