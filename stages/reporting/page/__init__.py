"""The HTML page and comparison.md, from the templates beside this file."""
