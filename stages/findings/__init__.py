"""Findings from the trials of a study, as numbers and enums: cells, contrasts, answers, audit."""
