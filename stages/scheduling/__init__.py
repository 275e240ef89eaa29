"""Runs the stages of a study and their trials on several workers at once. Only this folder imports
Dask.
"""
