"""The figures of the report, drawn offline from what ``comparison`` computes."""
