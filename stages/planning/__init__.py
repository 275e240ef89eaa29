"""What `make repro` would run and what it costs, estimated before anything runs."""
