"""Kinds of labelled rows: columns, answers, metrics and their form as text, without torch."""
