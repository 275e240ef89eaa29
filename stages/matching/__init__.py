"""Equal budgets: the number of steps of each run and the size of its model, compared with the
reference run."""
