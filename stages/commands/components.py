"""Show every component with its settings and their defaults, as Markdown tables.

A component is a file of stages/objectives, models, tasks, methods, sources, baselines or
optimizers. Its settings are the keyword parameters of its constructor: the keys that its entry in
params.yaml may have. `--write FILE ...` replaces the tables in Markdown files, each between
`<!-- generated: NAME -->` and `<!-- end -->`, where NAME is a folder, `params` (all settings of
params.yaml) or `fits` (the table of `python -m stages.commands.fits`).
"""

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

from stages.baselines._baseline import BASELINES
from stages.commands import fits
from stages.commands._parser import parser_of
from stages.commands._settings_tables import params_tables, shown_type, shown_value
from stages.core.components import Components, summary
from stages.methods._method import METHODS
from stages.models._backbone import MODELS
from stages.objectives._objective import OBJECTIVES
from stages.optimizers._optimizer import OPTIMIZERS
from stages.sources._source import SOURCES
from stages.tasks._task import TASKS

FOLDERS: dict[str, Components[Any]] = {
    components.folder: components
    for components in (OBJECTIVES, MODELS, TASKS, METHODS, SOURCES, BASELINES, OPTIMIZERS)
}
FITS, PARAMS = "fits", "params"
TABLES = (*FOLDERS, FITS, PARAMS)
BLOCK = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def main() -> None:
    parser = parser_of("components", __doc__)
    parser.add_argument("folder", nargs="*", help=f"any of {', '.join(FOLDERS)}; without, all")
    parser.add_argument(
        "--write", metavar="FILE", type=Path, nargs="+", help="replace the tables in these files"
    )
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.folder if name not in FOLDERS]:
        parser.error(f"no such folder of components: {', '.join(unknown)}")
    if arguments.write is None:
        tables = (table(name) for name in arguments.folder or FOLDERS)
        print("\n".join(tables), end="")
        return
    for file in arguments.write:
        try:
            written = filled(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            print(f"error: {file}: {error}", file=sys.stderr)
            raise SystemExit(2) from None
        file.write_text(written, encoding="utf-8")


def filled(text: str) -> str:
    """Returns the text with every table between marks generated anew.

    Raises ValueError for a mark that names no table.
    """

    def replaced(block: re.Match[str]) -> str:
        start, name, end = block.groups()
        if name not in TABLES:
            raise ValueError(f"no table is named {name!r}; valid: {', '.join(TABLES)}")
        return f"{start}\n{table(name)}\n{end}"

    return BLOCK.sub(replaced, text)


def table(name: str) -> str:
    """Returns the table ``name``: the components of a folder, the settings of params.yaml
    (``params``), or which models, tasks and methods go together (``fits``)."""
    if name == PARAMS:
        return "\n".join(params_tables()).lstrip("\n") + "\n"
    lines = fits.lines() if name == FITS else _rows(FOLDERS[name])
    return "\n".join(lines) + "\n"


def _rows(components: Components[Any]) -> Iterator[str]:
    yield "| name | what it is | settings |"
    yield "|---|---|---|"
    for name in components.names():
        cls = components.find(name, where=components.folder)
        settings = "<br>".join(f"`{setting}`" for setting in _settings(cls)) or "none"
        what = summary(components.folder, name).replace("|", "\\|")
        yield f"| `{name}` | {what} | {settings} |"


def _settings(cls: type) -> Iterator[str]:
    """Yields the settings of a component (``mask_prob: float = 0.15``), required ones first, in the
    order of the constructor; "or a list" marks settings that may list values to try."""
    schema: Any = getattr(cls, "schema", cls)
    parts = (cls.__init__, schema.__init__, getattr(schema, "from_settings", schema.__init__))
    settings: dict[str, tuple[Any, object]] = {}
    for part in parts:
        hints = get_type_hints(part)
        for key, parameter in inspect.signature(part).parameters.items():
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
                settings[key] = (hints[key], parameter.default)
    empty = inspect.Parameter.empty
    tried = getattr(cls, "tried", ())
    for key, (hint, default) in sorted(settings.items(), key=lambda item: item[1][1] is not empty):
        shown = f"{shown_type(hint)} or a list" if key in tried else shown_type(hint)
        yield f"{key}: {shown}" + ("" if default is empty else f" = {shown_value(default)}")


if __name__ == "__main__":
    main()
