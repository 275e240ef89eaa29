"""The commands that a user runs in addition to dvc: plan, fits, predict, export, ui, summary."""
