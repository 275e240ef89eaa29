"""The report of a study: findings in words and tables, figures and pages. It computes nothing."""
