"""Methods: how a checkpoint is adapted to a task. Each file without a leading underscore defines a
method.
"""
