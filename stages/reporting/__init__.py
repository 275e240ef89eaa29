"""The reports: tables, figures and the page, and what may be said of them."""
