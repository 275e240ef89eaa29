"""Optimizers: how the gradients of a step change the weights, one file each."""
