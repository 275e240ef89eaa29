"""Forms of files that are not read, and the command that converts each: the table forms.yaml."""

import re
import shlex
import sys
import zlib
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

from ruamel.yaml import YAML

from stages.core.artifacts import Json
from stages.core.text_files import opened
from stages.sources.files import files_below

TABLE = YAML(typ="safe").load(Path(__file__).with_suffix(".yaml"))
HEAD = 2**16  # bytes that are looked at
MANY = 0.05  # share of texts with a form from which on a note says so


def refuse_known(data: Path, *, always: bool, is_named: bool = False) -> None:
    """Raises ValueError with a command if a file of ``data`` has a form that is not read; with
    ``always`` only for the forms that would be read wrongly, and if the user has named the format
    (``is_named``) only for those with a command."""
    files = files_below(data) if data.is_dir() else [data] * data.is_file()
    heads = {file: _head(file) for file in files[:HEAD]}
    for form, (file, head) in product(TABLE["forms"], heads.items()):
        named = re.search(f"(^|/)[^/]*{form.get('name', '')}(\\.gz)?$", file.as_posix().lower())
        match = named and re.search(form.get("head", ""), head)
        is_meant = (not always or "always" in form) and "texts" not in form
        advice = _advice(form, file, match) if match and is_meant else ""
        if "\n" in advice or (advice and not is_named):
            raise ValueError(f"{file}: {advice}")


def odd_texts(texts: Sequence[str], file: Path) -> Iterator[str]:
    """Yields notes on what many texts have in them that is no language."""
    for form in (form for form in TABLE["forms"] if "texts" in form):
        num = sum(bool(re.search(form["texts"], text)) for text in texts)
        if num > MANY * len(texts) and (match := re.search(form["name"] + "$", file.name)):
            yield f"{num:,} of {len(texts):,} texts have {_advice(form, file, match)}"


def _head(file: Path) -> str:
    try:
        with opened(file) as binary:
            return binary.read(HEAD).decode(errors="replace").lstrip("\ufeff")
    except (OSError, EOFError, zlib.error):
        return ""


def _advice(form: Json, file: Path, match: re.Match[str]) -> str:
    """Returns what a form is, and the command that converts the file."""
    command = form.get("command", "")
    if kind := next((kind for kind in TABLE["commands"] if kind in form), None):
        command = TABLE["commands"][kind].replace("ROWS", form[kind])
    if file.suffix == ".gz" and "< FILE" in command:
        command = f"gzip -dc FILE | {command.replace('< FILE ', '')}"
    python, here = Path(sys.executable), Path.cwd()
    new = file.with_name(re.sub(r"(\.\w{1,7})+$", "", file.name) + "-rows")
    names = {"PYTHON": python.relative_to(here) if python.is_relative_to(here) else python}
    names |= {"FILE": file, "NEW": new, "FOLDER": file.parent, "ENDING": Path(file.suffix[1:])}
    for name, path in names.items():
        command = re.sub(rf"\b{name}\b", lambda _: shlex.quote(str(path)), command)  # noqa: B023
    text = form["what"] + "; --format NAME reads it as it is" * ("always" in form)
    text += f"; to convert it:\n  {command}" if command else ""
    return text.replace("SIGN", match.groupdict().get("SIGN", ""))
