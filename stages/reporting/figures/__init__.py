"""The pictures of the report, drawn offline."""
