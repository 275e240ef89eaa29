"""Methods: how a checkpoint is adapted to a task. A file without a leading underscore is a
method.
"""
