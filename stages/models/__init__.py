"""Backbones: a file without a leading underscore is an architecture, its constructor the schema
of `model:`.
"""
