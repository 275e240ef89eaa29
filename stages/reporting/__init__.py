"""The report of a study: the results of stages/findings as words, tables, figures and pages."""
