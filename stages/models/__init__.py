"""Backbones and their cost. Each file without a leading underscore defines one architecture; the
parameters of its constructor or ``schema`` are the settings of ``model:`` in params.yaml.
"""
