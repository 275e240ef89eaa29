"""Matched budgets: the number of steps and the model size at which a model has the reference run's
budget."""
