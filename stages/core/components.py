"""Finds and builds components, each named in params.yaml after a file in a folder of ``stages/``.

``{name: mlm, mask_prob: 0.15}`` under ``objective:`` names the one public class of
``stages/objectives/mlm.py``. The constructor is the schema: its positional parameters come from
code, its keyword-only parameters (after ``*``) come from params.yaml. Settings that several
components share are the fields of a dataclass, which the class names (``schema = Reading``) and
takes as its last positional parameter.
"""

import difflib
import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar, get_type_hints

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
        with the path of the file if it does not have one public class with all methods and class
        attributes.
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
        schema = _schema(self.find(str(entry.get("name", "")), where=where))
        try:
            return dict(schema(**{key: value for key, value in entry.items() if key != "name"}))
        except ValidationError as error:
            keys = schema.model_fields
            raise ValueError(describe(error, where, known=lambda _: keys)) from None

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
                from_code = (*from_code, schema(**values))
            return cls(*from_code, **own)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None


@cache
def _public_class(folder: str, name: str) -> type[Any]:
    module, file = importlib.import_module(f"stages.{folder}.{name}"), f"stages/{folder}/{name}.py"
    classes = [
        value
        for key, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == module.__name__ and key[0] != "_"
    ]
    if len(classes) != 1:
        names = ", ".join(cls.__name__ for cls in classes) or "none"
        raise ValueError(f"{file}: must define one public class, not {names}")
    (cls,) = classes
    declared = (item for base in cls.__mro__ for item in inspect.get_annotations(base).items())
    attributes = {key for key, kind in declared if "ClassVar[" in str(kind)}
    absent = {key for key in attributes if not hasattr(cls, key)}
    if missing := sorted(absent | getattr(cls, "__abstractmethods__", frozenset())):
        contract = file_of(cls.__mro__[1])
        raise ValueError(
            f"{file}: {cls.__name__} must define {', '.join(missing)}; the contract is in "
            f"{contract}"
        )
    return cls


@cache
def _schema(cls: type) -> Any:
    """Returns a model of pydantic with the settings of a component as its fields."""
    fields: dict[str, Any] = {}
    schema: Any = getattr(cls, "schema", cls)
    for key, parameter in inspect.signature(cls).parameters.items():
        is_positional = parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        if is_positional and parameter.default not in (inspect.Parameter.empty, None):
            what = f"{file_of(cls)}: the setting {key} of {cls.__name__}"
            raise ValueError(f"{what} must be keyword-only: put it after `*`")
    for part in (cls.__init__, schema.__init__):
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


def summary(cls: type) -> str:
    """Returns the first sentence of the docstring of a component's file, or else of its class."""
    text = inspect.getdoc(inspect.getmodule(cls)) or inspect.getdoc(cls) or ""
    paragraph = " ".join(text.split("\n\n")[0].split())
    sentence = re.split(r"(?<=[.])(?<!et al[.])\s+(?=[A-Z`<])", paragraph)[0]
    return sentence.replace("``", "`")


def file_of(cls: type) -> str:
    """Returns the path of the file that defines a class, for messages."""
    return f"{cls.__module__.replace('.', '/')}.py"


# Messages -----------------------------------------------------------------------------------------


@contextmanager
def below(where: str) -> Iterator[None]:
    """Prefixes the ValueErrors raised inside with the path ``where``."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{where}.{error}") from None


def describe(
    error: ValidationError, where: str, *, known: Callable[[Location], Iterable[str]]
) -> str:
    """Returns one line per fault, with its path in params.yaml. ``known`` returns the valid keys of
    the mapping at a location."""
    faults = error.errors()
    return "\n".join(
        f"{where}.{path_of(fault['loc'])}: {message_of(fault, known)}" for fault in faults
    )


def message_of(fault: Mapping[str, Any], known: Callable[[Location], Iterable[str]]) -> str:
    """Returns the message of a fault that pydantic found; ``known`` as in ``describe``."""
    message = fault["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    match fault["type"]:
        case "extra_forbidden":
            *location, key = fault["loc"]
            return unknown(str(key), known(tuple(location)))
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
