"""Matched budgets: steps and sizes of models are set so that they have the reference's budget."""
