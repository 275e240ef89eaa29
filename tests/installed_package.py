"""A small distribution that counts as installed, for tests that read installed packages."""

import csv
from collections.abc import Mapping
from pathlib import Path

import pytest


def install(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: Mapping[str, str],
    *,
    name: str = "shelf",
    version: str = "1.2",
) -> None:
    """Writes ``files`` and the metadata of a wheel to ``root``, and adds ``root`` to sys.path."""
    for file, source in files.items():
        path = root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")
    about = root / f"{name}-{version}.dist-info"
    about.mkdir(parents=True, exist_ok=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    with (about / "RECORD").open("w", newline="") as record:
        csv.writer(record).writerows([file, "", ""] for file in files)
    if str(root) not in __import__("sys").path:
        monkeypatch.syspath_prepend(str(root))


def module(topic: str, number: int) -> str:
    """Returns source with a unique docstring, code, and a line that fails on import."""
    return f'''"""Keep the {topic} of shelf {number} in order, whatever a reader takes away."""

raise SystemExit("this module was imported")


def order_{number}(books, reverse=False, count={number}):
    """Sort the {topic} on shelf {number} by their titles.

    A call of ``order_{number}`` leaves the books of room {number} where they are.

    Parameters
    ----------
    books : list of str
        A list of strings, the titles of the {topic} in room {number}.
    reverse : bool, optional
        Whether the last title of room {number} comes first.
    count : int or None
        How many of the {topic} are kept in room {number} at most.

    Returns
    -------
    list of str
        The titles of the {topic} in the order of room {number}.

    Raises
    ------
    ValueError
        If room {number} has no {topic} that could be sorted.

    Notes
    -----
    The sort of the {topic} in room {number} is stable.

    Examples
    --------
    >>> order_{number}(["b", "a"])
    ['a', 'b']
    """
'''
