"""Backbones, and what they cost: a file without a leading underscore is an architecture, and its
constructor is the schema of ``model:``.
"""
