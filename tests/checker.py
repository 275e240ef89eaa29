"""Checks every signature in stages/ in every test: types by beartype, shapes by jaxtyping.

Only the first CHECKED_CALLS calls of a function in a test are checked: checking all would take a
fifth of the time of tests that train. Never checked are generators, because sizes would stay fixed
between two items; functions defined in functions, because beartype would compile a check for every
definition; and calls that torch traces for an export, because sizes are symbols.
jaxtyping's own decorator checks arguments twice, which would take longer than most tests.
"""

from collections.abc import Callable
from dataclasses import is_dataclass
from functools import wraps
from inspect import isclass, isgeneratorfunction, unwrap
from typing import Any

import jaxtyping
import torch
from beartype import BeartypeConf, beartype
from jaxtyping import install_import_hook

NEW_SIZES = jaxtyping.jaxtyped("context")  # inside, B has one value everywhere
CONF = BeartypeConf(is_pep484_tower=True)  # an int may be passed as a float, as in pyright
CHECKED_CALLS = 30
# Names that tasks import for type checkers alone, since they are read without torch, too.
LAZY = {"Tensor": torch.Tensor, "Float": jaxtyping.Float, "nn": torch.nn}
calls = dict[int, int]()  # of each function in this test, by the id of its code


def install() -> None:
    """Checks all modules of stages/ that are imported from now on."""
    # The hook decorates functions and classes with jaxtyping.jaxtyped.
    jaxtyping.jaxtyped = checked  # type: ignore[assignment]
    install_import_hook("stages", None)


def checked(target: Any = None, *, typechecker: object = None) -> Any:
    """Returns a function whose calls are checked, or a dataclass whose fields are checked."""
    if target is None:
        return checked
    if isclass(target):
        if is_dataclass(target) and "__init__" in vars(target):
            target.__init__ = checked(target.__init__)
        return target
    if isgeneratorfunction(unwrap(target)) or "<locals>" in target.__qualname__:
        return target
    code = id(unwrap(target).__code__)
    checking: Callable[..., Any] | None = None

    @wraps(target)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal checking
        number = calls.get(code, 0)
        if number == CHECKED_CALLS or torch.compiler.is_exporting():
            return target(*args, **kwargs)
        calls[code] = number + 1
        if checking is None:  # most are never called
            target.__annotations__ = _resolved(target)
            checking = beartype(conf=CONF)(target)
        with NEW_SIZES:
            return checking(*args, **kwargs)

    return call


def _resolved(function: Callable[..., Any]) -> dict[str, Any]:
    hints = {}
    for name, hint in function.__annotations__.items():
        if isinstance(hint, str):
            try:
                hint = eval(hint, LAZY | unwrap(function).__globals__)
            except NameError:  # imported for type checkers alone
                hint = Any
        hints[name] = hint
    return hints
