"""What every stage shares: params.yaml's schema, components found by name, artifacts, seeds, and
which code a result comes from.
"""
