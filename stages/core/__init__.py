"""The base of every stage: the schema of params.yaml, components found by name, artifacts, seeds,
and the code that a result comes from."""
