"""The report: comparison (numbers), figures (pictures) and page (HTML and Markdown)."""
