"""Export: checkpoints, trials and baselines as folders that work without this project."""
