"""The label that counts in no loss, for code that runs without torch."""

IGNORE_INDEX = -100  # a label that counts in no loss and no metric
