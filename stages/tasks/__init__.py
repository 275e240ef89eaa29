"""Tasks, each a kind of labelled rows with a model's head, a loss and a prediction rule. Each file
without a leading underscore is a task."""
