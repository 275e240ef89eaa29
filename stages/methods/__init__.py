"""Methods: how a checkpoint is adapted to a task. A file is a method."""
