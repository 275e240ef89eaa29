"""The commands that a user runs in addition to dvc, such as new, plan, predict and export."""
