"""How the Hugging Face hub names a model, a data set and their commits."""

import re

ON_THE_HUB = re.compile(r"[\w.-]+(/[\w.-]+)?")
COMMIT = re.compile(r"[0-9a-f]{40}")
