"""The files of a study that must be the same however it was run."""

import hashlib
from pathlib import Path

# What is measured of the machine differs between any two runs.
MEASURED = ("data/timings", "reports/costs.csv", "reports/index.html", "reports/summary.json")


def hashes_of(folder: Path) -> dict[str, str]:
    """Returns the MD5 of every file of data/ and reports/ but those that hold measurements."""
    files = {
        str(file.relative_to(folder)): file
        for top in ("data", "reports")
        for file in (folder / top).rglob("*")
        if file.is_file() and not file.is_symlink()
    }
    return {
        name: hashlib.md5(file.read_bytes()).hexdigest()
        for name, file in sorted(files.items())
        if not name.startswith(MEASURED)
    }


def difference(results: dict[str, str], expected: dict[str, str]) -> str:
    """Returns the names of the files that differ, or nothing."""
    names = sorted(results.items() ^ expected.items())
    return ", ".join(dict.fromkeys(name for name, _ in names))
