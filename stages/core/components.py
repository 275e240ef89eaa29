"""Finds and builds components, each named in params.yaml after a file in a folder of ``stages/``.

``{name: mlm, mask_prob: 0.15}`` under ``objective:`` names the one public class of
``stages/objectives/mlm.py``. The constructor is the schema: its positional parameters come from
code, its keyword-only parameters (after ``*``) come from params.yaml. Settings that several
components share are the fields of a dataclass, which the class names (``schema = Dimensions``) and
takes as its last positional parameter. If the dataclass has a class method ``from_settings``, that
constructs it, and the parameters of the method are settings, too.
"""

import ast
import difflib
import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar, get_origin, get_type_hints

from pydantic import ConfigDict, ValidationError, create_model

STAGES = Path(__file__).parents[1]
C = TypeVar("C")
Location = tuple[int | str, ...]  # of a node in params.yaml: its keys and positions
Settings = Mapping[str, Any]  # a mapping of params.yaml: its values are checked where they are used


class Components(Generic[C]):
    """The components of one folder, all of type ``C``: ``Components[Objective]("objectives")``."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def names(self) -> list[str]:
        """Returns the names of the folder's modules that do not begin with ``_``."""
        files = (STAGES / self.folder).glob("*.py")
        return sorted(path.stem for path in files if not path.stem.startswith("_"))

    def find(self, name: str, *, where: str) -> type[C]:
        """Returns the class of the component ``stages/{folder}/{name}.py``.

        Raises ValueError with the path in params.yaml (``where``) if there is no such file, and
        with the path of the file if the file does not define one valid component.
        """
        if name not in self.names():
            raise ValueError(f"{where}.name: {unknown(name, self.names())}")
        return _public_class(self.folder, name)

    def settings(self, entry: Settings, *, where: str) -> dict[str, Any]:
        """Returns the settings of the component that ``entry`` names, with defaults, checked
        against its constructor.

        Raises ValueError with the path in params.yaml for an unknown name, a misspelt or missing
        key, or a wrong type.
        """
        cls = self.find(str(entry.get("name", "")), where=where)
        given = {key: value for key, value in entry.items() if key != "name"}
        return check(cls, given, where=where)

    def build(self, entry: Settings, *from_code: Any, where: str) -> C:
        """Constructs the component named in ``entry``, from ``from_code`` and the settings in
        ``entry``.

        Raises the errors of ``settings``, and ValueError for values that the constructor refuses.
        """
        cls: Any = self.find(str(entry.get("name", "")), where=where)
        values = self.settings(entry, where=where)
        own = {key: values.pop(key) for key in _keywords(cls.__init__)}
        try:
            if schema := getattr(cls, "schema", None):
                from_code = (*from_code, getattr(schema, "from_settings", schema)(**values))
            return cls(*from_code, **own)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None


@cache
def _public_class(folder: str, name: str) -> type[Any]:
    """Returns the one public class of a file.

    Raises ValueError, which names the file, if the file has no or several public classes, or if the
    class lacks a method or a class variable of its contract.
    """
    module, file = importlib.import_module(f"stages.{folder}.{name}"), f"stages/{folder}/{name}.py"
    classes = [
        value
        for key, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == module.__name__ and key[0] != "_"
    ]
    if len(classes) != 1:
        names = ", ".join(each.__name__ for each in classes) or "none"
        raise ValueError(
            f"{file}: must define one public class, not {names}; a name of another class begins "
            "with _"
        )
    (cls,) = classes
    missing = sorted(getattr(cls, "__abstractmethods__", ())) + [
        variable
        for base in cls.__mro__
        for variable, hint in vars(base).get("__annotations__", {}).items()
        if get_origin(hint) is ClassVar and not hasattr(cls, variable)
    ]
    if missing:
        raise ValueError(
            f"{file}: {cls.__name__} must define {', '.join(missing)}; the contract is in "
            f"{file_of(cls.__mro__[1])}"
        )
    return cls


def check(cls: type, values: Settings, *, where: str) -> dict[str, Any]:
    """Returns the settings ``values`` with defaults, checked against the schema of ``cls``."""
    try:
        return dict(_schema(cls)(**values))
    except ValidationError as error:
        valid_keys = list(_schema(cls).model_fields)
        raise ValueError(describe(error, where, known=lambda _: valid_keys)) from None


@cache
def _schema(cls: type) -> Any:
    fields: dict[str, Any] = {}
    schema: Any = getattr(cls, "schema", cls)
    for part in (cls.__init__, schema.__init__, getattr(schema, "from_settings", schema.__init__)):
        hints = get_type_hints(part, include_extras=True)
        for key, parameter in _keywords(part).items():
            if key not in hints:
                what = f"{file_of(cls)}: the setting {key} of {cls.__name__}"
                raise ValueError(f"{what} needs a type, such as `{key}: float`")
            required = parameter.default is inspect.Parameter.empty
            fields[key] = (hints[key], ... if required else parameter.default)
    strict = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, protected_namespaces=())
    return create_model(cls.__name__, __config__=strict, **fields)


def _keywords(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Returns the keyword-only parameters of a function."""
    parameters = inspect.signature(function).parameters
    return {k: p for k, p in parameters.items() if p.kind is inspect.Parameter.KEYWORD_ONLY}


def summary(folder: str, name: str) -> str:
    """Returns the first sentence of the docstring of ``stages/{folder}/{name}.py``, or of its class
    if the module has none. The file is parsed, not imported."""
    module = ast.parse((STAGES / folder / f"{name}.py").read_text(encoding="utf-8"))
    classes = (node for node in module.body if isinstance(node, ast.ClassDef))
    public = next(node for node in classes if not node.name.startswith("_"))
    text = ast.get_docstring(module) or ast.get_docstring(public) or ""
    paragraph = " ".join(text.split("\n\n")[0].split())
    sentence = re.split(r"(?<=[.])(?<!et al[.])\s+(?=[A-Z`<])", paragraph)[0]
    return sentence.replace("``", "`")


def file_of(cls: type) -> str:
    """Returns the path of the file that defines a class, for messages."""
    return f"{cls.__module__.replace('.', '/')}.py"


class BrokenContract(ValueError):
    """The file of a component does not do what its contract says. The message begins with the file,
    since no setting is at fault."""


@contextmanager
def below(where: str) -> Iterator[None]:
    """Prefixes the ValueErrors raised inside, except BrokenContract, with the path ``where``."""
    try:
        yield
    except BrokenContract:
        raise
    except ValueError as error:
        raise ValueError(f"{where}.{error}") from None


def describe(
    error: ValidationError, where: str, *, known: Callable[[Location], Iterable[str]]
) -> str:
    """Returns one line per fault, with its path in params.yaml and what would be valid. ``known``
    returns the valid keys of the mapping at a location."""
    lines = []
    for fault in error.errors():
        location = fault["loc"]
        path = f"{where}.{path_of(location)}".lstrip(".")
        lines.append(f"{path}: {message_of(fault, known(location[:-1]))}")
    return "\n".join(lines)


def message_of(fault: Mapping[str, Any], keys: Iterable[str]) -> str:
    """Returns the message of a fault that pydantic found; ``keys`` are valid in the place of an
    unknown one."""
    message = fault["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    match fault["type"]:
        case "extra_forbidden":
            return unknown(str(fault["loc"][-1]), keys)
        case "missing":
            return "missing; give it a value"
        case "dict_type" | "model_type":
            message = "must be a mapping of settings"
    return f"{message[0].lower()}{message[1:]}, not {fault['input']!r}"


def path_of(location: Location) -> str:
    """Returns a location as a path in params.yaml."""
    return ".".join(str(part) for part in location if part != "[key]")


def unknown(name: str, valid: Iterable[str]) -> str:
    """Returns a message such as ``unknown 'mlmm'; did you mean 'mlm'? Valid: causal, mlm``."""
    valid = list(valid)
    near = difflib.get_close_matches(name, valid, n=1)
    guess = f"did you mean {near[0]!r}? " if near else ""
    return f"unknown {name!r}; {guess}Valid: {', '.join(valid)}" if valid else f"unknown {name!r}"
