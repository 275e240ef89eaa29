"""What stands in the appendix of the pages."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Appendix:
    """Tables under one heading, by their captions, and notes on them."""

    heading: str
    tables: dict[str, list[dict[str, str]]]
    notes: list[str]
