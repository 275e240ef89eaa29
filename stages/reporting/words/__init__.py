"""The sentences and tables of the pages, and the rows of the files in reports/."""
