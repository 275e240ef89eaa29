"""The report of a study: comparison (numbers), figures (pictures) and page (HTML and Markdown)."""
