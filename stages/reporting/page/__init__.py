"""The HTML page and comparison.md, from the templates in this folder."""
