"""Every signature in stages/ is checked in every test: types by beartype, shapes by jaxtyping.

Each call of a function is checked once, with its answer, until a test has called it CHECKED_CALLS
times: to check all takes a fifth of the time of tests that train. jaxtyping's own decorator binds
the arguments of all functions anew and checks them twice, which takes longer than most tests.
"""

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import is_dataclass
from functools import wraps
from inspect import get_annotations, isclass, isgeneratorfunction, unwrap
from types import CodeType
from typing import Any, get_args

import jaxtyping
from beartype import BeartypeConf, beartype
from jaxtyping import AbstractArray, install_import_hook

NEW_SIZES = jaxtyping.jaxtyped("context")  # within which B is as many everywhere
CONF = BeartypeConf(is_pep484_tower=True)  # as pyright, an int will do where a float is asked for
CHECKED = "__is_checked__"
CHECKED_CALLS = 30
calls = dict[int, int]()  # of functions by the id of their code, in this test
LOCAL: dict[CodeType, Callable[..., Any]] = {}
CALLED: ContextVar[Callable[..., Any]] = ContextVar("called")


def install() -> None:
    """In all modules of stages/ that are imported from now on."""
    # What the hook decorates functions and classes with.
    jaxtyping.jaxtyped = checked  # type: ignore[assignment]
    install_import_hook("stages", None)


def checked(target: Any = None, *, typechecker: object = None) -> Any:
    """A function whose calls are checked, or a dataclass whose fields are."""
    if target is None:
        return checked
    if isclass(target):
        if is_dataclass(target) and not hasattr(target.__init__, CHECKED):
            target.__init__ = checked(target.__init__)
        return target
    if isinstance(target, classmethod | staticmethod):
        return type(target)(checked(target.__func__))
    if isinstance(target, property):
        parts = (target.fget, target.fset, target.fdel)
        checks = (checked(part) if part else None for part in parts)
        return property(*checks, doc=target.__doc__)
    return _checked(target)


def _checked(function: Callable[..., Any]) -> Callable[..., Any]:
    is_local, code = "<locals>" in function.__qualname__, id(unwrap(function).__code__)
    checking: Callable[..., Any] | None = None

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal checking
        number = calls.get(code, 0)
        if number == CHECKED_CALLS:
            return function(*args, **kwargs)
        calls[code] = number + 1
        if checking is None:  # most are never called
            checking = _of_code(function) if is_local else _checking(function)
        if is_local:
            CALLED.set(function)
        return checking(*args, **kwargs)

    setattr(call, CHECKED, True)
    return call


def _of_code(function: Callable[..., Any]) -> Callable[..., Any]:
    """What checks all functions that one line of a function has made: it calls the latest."""
    if function.__code__ not in LOCAL:

        @wraps(function)
        def latest(*args: Any, **kwargs: Any) -> Any:
            return CALLED.get()(*args, **kwargs)

        LOCAL[function.__code__] = _checking(latest)
    return LOCAL[function.__code__]


def _checking(function: Any) -> Callable[..., Any]:
    function.__annotations__ = _resolved(function)
    if not any(map(_has_sizes, function.__annotations__.values())):
        return beartype(conf=CONF)(function)
    if isgeneratorfunction(unwrap(function)):
        return _checking_arguments(function)
    checking = beartype(conf=CONF)(function)

    def with_sizes(*args: Any, **kwargs: Any) -> Any:
        with NEW_SIZES:
            return checking(*args, **kwargs)

    return with_sizes


def _checking_arguments(function: Callable[..., Any]) -> Callable[..., Any]:
    """Of a generator, before others of its size are called between two of its items."""

    @wraps(function)
    def nothing(*args: Any, **kwargs: Any) -> None:
        return None

    arguments = {name: hint for name, hint in function.__annotations__.items() if name != "return"}
    without_answer: Any = nothing
    without_answer.__annotations__ = arguments
    checking: Callable[..., Any] = beartype(conf=CONF)(without_answer)

    def with_sizes(*args: Any, **kwargs: Any) -> Any:
        with NEW_SIZES:
            checking(*args, **kwargs)
        return function(*args, **kwargs)

    return with_sizes


def _resolved(function: Callable[..., Any]) -> Mapping[str, Any]:
    hints = {}
    for name, hint in function.__annotations__.items():
        if isinstance(hint, str):
            try:
                hint = _read(name, hint, getattr(unwrap(function), "__globals__", {}))
            except NameError:  # of a class in a function, or imported for type checkers alone
                hint = Any
        hints[name] = hint
    return hints


def _read(name: str, hint: str, known: dict[str, Any]) -> Any:
    def alone() -> None: ...

    alone.__annotations__ = {name: hint}
    return get_annotations(alone, globals=known, eval_str=True)[name]


def _has_sizes(hint: Any) -> bool:
    is_array = isclass(hint) and issubclass(hint, AbstractArray)
    return is_array or any(map(_has_sizes, get_args(hint)))
