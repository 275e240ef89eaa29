"""Change one small thing in the code, and see whether a test fails.

    python benchmarks/mutants.py stages/findings --tests tests/findings --number 40

draws 40 places of a package with a seed (comparisons, arithmetic, and/or, not, numbers, booleans,
conditions), changes one at a time in a copy of the checkout, and runs the tests named until one
fails. Prints a line for each mutant and the share that was killed; survivors are either equivalent
or want a test. The tests must be green without a change. Ends with 1 if fewer than nine tenths were
killed.
"""

import argparse
import ast
import copy
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

SWAPS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
PRELOADED = ("torch", "pandas", "sklearn.linear_model", "scipy.stats", "pytest", "pydantic")


def places(tree: ast.Module) -> Iterator[ast.AST]:
    """Each expression that can be changed, in the order of the file.

    Left out are annotations, decorators, class bodies and what only makes the text of an error.
    """

    def visit(node: ast.AST, inside: bool) -> Iterator[ast.AST]:
        if isinstance(node, ast.Raise | ast.Assert | ast.AnnAssign | ast.JoinedStr):
            return
        if inside and changed(copy.deepcopy(node)) is not None:
            yield node
        if isinstance(node, ast.FunctionDef):
            for statement in node.body:
                yield from visit(statement, True)
        else:
            for child in ast.iter_child_nodes(node):
                yield from visit(child, inside)

    yield from visit(tree, False)


def changed(node: ast.AST) -> ast.AST | None:
    """The node with its one change, in place; None where there is nothing to change."""
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in SWAPS:
            node.ops = [SWAPS[type(operator)]()]
        case ast.BinOp() | ast.BoolOp() | ast.AugAssign() if type(node.op) in SWAPS:
            node.op = SWAPS[type(node.op)]()
        case ast.UnaryOp(op=ast.Not()):
            return ast.Call(ast.Name("bool", ast.Load()), [node.operand], [])
        case ast.Constant(value=bool()):
            node.value = not node.value
        case ast.Constant(value=int() | float()):
            node.value = node.value + 1
        case ast.If() | ast.IfExp() | ast.While() if not isinstance(
            node.test, ast.Compare | ast.Constant
        ):
            node.test = ast.UnaryOp(ast.Not(), node.test)
        case _:
            return None
    return node


class Replace(ast.NodeTransformer):
    """Puts the changed form in the place of one node."""

    def __init__(self, target: ast.AST) -> None:
        self.target = target

    def visit(self, node: ast.AST) -> ast.AST:
        if node is self.target:
            return changed(node)
        return self.generic_visit(node)


def mutant(path: Path, number: int) -> tuple[str, str]:
    """The mutated source of a file, and a line that says where and what was changed."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    node = list(places(tree))[number]
    shown = node.test if isinstance(node, ast.If | ast.While) else node
    before = ast.unparse(shown)
    line = node.lineno
    new = Replace(node).visit(tree)
    shown = node.test if isinstance(node, ast.If | ast.While) else node
    after = ast.unparse(shown) if not isinstance(node, ast.UnaryOp) else before.removeprefix("not ")
    return ast.unparse(ast.fix_missing_locations(new)), f"{line}: {before[:60]}  ->  {after[:60]}"


def run(folder: Path, tests: list[str], timeout: float) -> str:
    """Run tests in a fork of this process; "" if they pass, else the first that failed.

    Args:
        timeout: In seconds; tests that take longer count as failed.
    """
    log = folder / "mutant.log"
    child = os.fork()
    if child == 0:
        os.setsid()
        os.chdir(folder)
        sys.path[:0] = [str(folder), str(folder / "tests")]
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        import pytest

        options = ["-x", "-q", "-n0", "-p", "no:cacheprovider", "--tb=no", "-W", "ignore"]
        os._exit(int(pytest.main([*options, "-m", "not nightly", *tests])))
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        finished, status = os.waitpid(child, os.WNOHANG)
        if finished:
            if status == 0:
                return ""
            failed = [
                line
                for line in log.read_text().splitlines()
                if line.startswith(("FAILED", "ERROR"))
            ]
            return failed[0].split(" - ")[0] if failed else "the tests did not start"
        time.sleep(0.1)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return f"no end within {timeout:.0f} s"


def main() -> int:
    """Draw mutants, run the tests on each, print the outcomes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("code", nargs="+", type=Path, help="files or folders of stages/ to change")
    parser.add_argument(
        "--tests", nargs="+", required=True, help="tests to run, the quickest first"
    )
    parser.add_argument("--number", type=int, default=40, help="mutants to draw (default: 40)")
    parser.add_argument("--seed", type=int, default=1, help="of the draw (default: 1)")
    arguments = parser.parse_args()
    files = sorted(
        file
        for path in arguments.code
        for file in ([path] if path.is_file() else path.rglob("*.py"))
    )
    sites = [
        (file, number)
        for file in files
        for number in range(len(list(places(ast.parse(file.read_text(encoding="utf-8"))))))
    ]
    drawn = sorted(random.Random(arguments.seed).sample(sites, min(arguments.number, len(sites))))
    print(f"{len(drawn)} of {len(sites)} places", flush=True)
    for module in PRELOADED:
        __import__(module)
    folder = Path(tempfile.mkdtemp(prefix="mutants-"))
    try:
        subprocess.run(["git", "clone", "-q", ".", folder], check=True)
        listed = subprocess.run(["git", "ls-files"], check=True, capture_output=True, text=True)
        for name in listed.stdout.split("\n"):
            if name and Path(name).is_file():
                shutil.copy(name, folder / name)
        if Path(".venv").exists():
            (folder / ".venv").symlink_to(Path(".venv").resolve())
        begin = time.monotonic()
        if failed := run(folder, arguments.tests, 1800):
            print(f"not green without a change: {failed}")
            return 2
        seconds = time.monotonic() - begin
        killed = 0
        for file, number in drawn:
            source, said = mutant(file, number)
            (folder / file).write_text(source, encoding="utf-8")
            failed = run(folder, arguments.tests, 5 * seconds + 30)
            shutil.copy(file, folder / file)
            killed += bool(failed)
            print(f"{'killed  ' if failed else 'SURVIVED'} {file}:{said}  {failed}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{killed} of {len(drawn)} killed")
    return 0 if killed >= 0.9 * len(drawn) else 1


if __name__ == "__main__":
    sys.exit(main())
