"""The documentation in Python source, read from its syntax tree: nothing is imported or run."""

import ast
import re
from collections.abc import Iterator

_DOCUMENTING = re.compile(r"add_?(new)?doc(str)?")  # numpy's add_newdoc, torch's add_docstr
_SHORTEST = 15  # characters; a shorter argument of such a call is a name


def docstrings(source: bytes) -> list[str]:
    """Returns the documentation strings of a file in their order.

    These are the docstrings of the module, its classes and functions; strings below an attribute;
    and arguments of ``add_newdoc`` and ``add_docstr`` calls, which document code written in C. A
    file that this Python cannot parse has none.
    """
    try:
        return list(_documentation(ast.parse(source).body, attributes=True))
    except (SyntaxError, ValueError, RecursionError):
        return []


def _documentation(body: list[ast.stmt], *, attributes: bool) -> Iterator[str]:
    """Yields the documentation strings in a body. With ``attributes`` every string that is a
    statement counts, otherwise a string counts only as the first statement."""
    for position, node in enumerate(body):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                if attributes or position == 0:
                    yield text
            case ast.Expr(value=ast.Call() as call) | ast.Assign(value=ast.Call() as call) if (
                _DOCUMENTING.search(_name(call.func))
            ):
                yield from _strings(call.args)
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from _documentation(node.body, attributes=isinstance(node, ast.ClassDef))
            case ast.If() | ast.For() | ast.While() | ast.Try() | ast.With():
                for block in ("body", "orelse", "finalbody"):
                    # Strings in blocks are no docstrings, but definitions may have docstrings.
                    yield from _documentation(
                        [n for n in getattr(node, block, []) if not _is_string(n)],
                        attributes=False,
                    )


def _is_string(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _name(function: ast.expr) -> str:
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _strings(nodes: list[ast.expr]) -> Iterator[str]:
    for node in nodes:
        text = _string(node)
        if len(text) >= _SHORTEST:
            yield text
        elif isinstance(node, ast.Tuple | ast.List):  # add_newdoc(..., ("name", "doc"))
            yield from _strings(node.elts)


def _string(node: ast.expr) -> str:
    """Returns the text of ``"..."``, ``"..." + "..."`` and ``"...".format(...)``, or an empty text
    for other code."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _string(left) + _string(right)
        case ast.Call(func=ast.Attribute(value=inner)):  # .format(...), .replace(...)
            return _string(inner)
    return ""
