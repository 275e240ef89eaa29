"""The stages of a study and the trials within them, on several workers at once. Only here Dask is
imported.
"""
