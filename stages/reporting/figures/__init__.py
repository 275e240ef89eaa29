"""The figures of the report, drawn offline from what ``stages/findings`` computes."""
