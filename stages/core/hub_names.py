"""Patterns of names on the Hugging Face hub: models, data sets and their commits."""

import re

ON_THE_HUB = re.compile(r"[\w.-]+(/[\w.-]+)?")
COMMIT = re.compile(r"[0-9a-f]{40}")
