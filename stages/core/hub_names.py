"""How the Hugging Face hub names a model, a data set and their commits."""

import re

ON_THE_HUB = re.compile(r"[\w.-]+(/[\w.-]+)?")
COMMIT = re.compile(r"[0-9a-f]{40}")


def in_yaml(revision: str) -> str:
    """With quotes if it would be read as a number: ``7284e50``."""
    return f'"{revision}"' if re.fullmatch(r"\d+(e\d+)?", revision) else revision
