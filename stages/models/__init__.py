"""Backbones: a file is an architecture, its constructor the dimensions."""
