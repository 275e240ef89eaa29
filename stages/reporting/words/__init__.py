"""What the pages say: sentences and tables."""
