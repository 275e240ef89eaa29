"""Where commands print their tables."""

from rich.console import Console


def console(*, piped_width: int) -> Console:
    """As wide as the terminal; a file or a pipe gets lines of ``piped_width``, so that nothing is
    cut off there."""
    found = Console()
    return found if found.is_terminal else Console(width=piped_width)
