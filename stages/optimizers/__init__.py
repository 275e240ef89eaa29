"""Optimizers, one file each, which update the weights with the gradients of a step."""
