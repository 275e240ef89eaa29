"""The console on which commands print their tables."""

from rich.console import Console


def console(*, piped_width: int) -> Console:
    """Returns a console as wide as the terminal. A file or a pipe gets lines of ``piped_width``, so
    that nothing is cut off there."""
    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=piped_width)
