"""Optimizers, one file each: they change the weights by the gradients of a step."""
