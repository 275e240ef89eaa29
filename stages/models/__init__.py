"""Backbones and their cost. Each file without a leading underscore defines an architecture, whose
constructor is the schema of ``model:`` in params.yaml.
"""
