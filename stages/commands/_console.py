"""The console on which commands print their tables."""

from rich.console import Console


def console(*, piped_width: int) -> Console:
    """Returns a console as wide as the terminal, or of ``piped_width`` characters if the output
    goes to a file or a pipe, so that nothing is cut off there."""
    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=piped_width)
