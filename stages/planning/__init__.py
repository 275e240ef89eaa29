"""The stages that `make repro` would run and their cost, estimated before anything runs."""
