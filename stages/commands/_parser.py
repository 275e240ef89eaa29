"""The parser of a command's options."""

import argparse
from typing import Any


def parser_of(command: str, docstring: str | None, **settings: Any) -> argparse.ArgumentParser:
    """Returns a parser whose help begins with the docstring of the command's module."""
    return argparse.ArgumentParser(
        prog=f"python -m stages.commands.{command}",
        description=docstring,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        **settings,
    )
