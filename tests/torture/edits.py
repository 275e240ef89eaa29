"""Random edits of the committed studies, each judged by the loader and the checks of
``stages.resolve`` in this process."""

import copy
import datetime
import json
import random
import re
import shlex
import signal
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from stages.checking.faults import find_faults
from stages.core.study_file import StudyFile, load
from tests.project import ROOT
from tests.smoke import STUDIES, plans
from tests.torture.tally import KEPT, Tally

SLOWEST_S = 1.0  # CPU time of one check in this process
STOPPED_S = 60  # for a check that waits instead of computing

Place = tuple[Any, ...]


def nested(depth: int) -> list[Any]:
    """Returns lists inside each other."""
    outer: list[Any] = [1]
    for _ in range(depth):
        outer = [outer]
    return outer


VALUES: tuple[Any, ...] = (
    *(None, -1, 0, 1, 2, 3, 10**9, 10**12, 10**30, -(10**30), 2**31, 2**63, 2**64),
    *(-0.5, 0.5, 1.5, 1e-3, 1e308, 5e-324, float("nan"), float("inf"), True, False),
    *("", "x", "none", "all", "hub", "full", "lora", "mlm", "encoder", "decoder", "cuda", "auto"),
    *("../x", "/etc/passwd", "/dev/zero", "/dev/stdin", "/proc/self/mem", "a" * 300, "a" * 10**5),
    *("é", "名前", "\u202e", "\x07", "a\nb", "a\tb", "a b", "a/b", "a.b", "-x", "--help", "a'b"),
    *("1e-3", "0x10", "1_000", "~", "yes", "${x}", "${item}", "$(touch RAN)", "`id`", "a;b", "%s"),
    *([], {}, [1, 2], ["x"], [[]], [None], {"a": {"b": 1}}, {1: 2}, {"name": "mlm"}, {"name": 1}),
    *({"name": "../../etc"}, {"name": "_attention"}, {"name": ["encoder"]}, {"name": {"a": 1}}),
    *(nested(30), nested(60), [1] * 1000, {str(i): i for i in range(300)}),
    *(b"bytes", datetime.date(2020, 1, 1), {"a"}, "docs", "README.md", "pyproject.toml"),
)
KEYS: tuple[Any, ...] = (
    *("x", "lr", "name", "seed", "seeds", "parent", "corpus", "all", "none", "a.b", "A", ""),
    *("path", "item", "key", "${x}", "size", "nfiles", "é", "a b", "a/b", "-x", "\u202e", "a\nb"),
    *("__class__", "model_fields", "self", "cls", "args", "kwargs", "vars", "torch", "stages"),
    *("train", "test", "text", "label", 1, None, True, 1.5, datetime.date(2020, 1, 1)),
)
PIECES = (
    *"{}[]:,-#&*!|>'\"%@`\\?~ \n\t\r\0é\u2028\ufeff\u0085😀\x1b",
    *("---\n", "...\n", "<<: ", "<< : ", "? ", "| ", "> ", "0x", "1e", "nan", ".inf", "${", "}}"),
    *("&a ", "*a ", "!!bool ", "!!int ", "!!float ", "!!timestamp ", "!!binary ", "!!set "),
    *("!!omap ", "!!null ", "!!str ", "!!map ", "!!python/object/apply:os.system ", "2020-01-01 "),
    *("[" * 50, "{a: " * 500, "9" * 400, "- " * 3000),
)


def edit_structures(numbers: range, seed: int, seconds: float) -> Tally:
    """Checks studies in which keys and values were removed, renamed, moved or replaced."""
    studies = [YAML(typ="safe").load(path.read_text()) for path in STUDIES]
    tally = Tally("structural", seed)
    writer = YAML(typ="safe")
    writer.allow_unicode = True
    with _checks() as file:
        for number, rng in tally.numbers(numbers, seconds):
            raw = edited_structure(rng.choice(studies), rng)
            with file.open("w", encoding="utf-8", errors="surrogatepass") as stream:
                writer.dump(raw, stream)
            _judge(file, tally, number)
    return tally


def edit_texts(numbers: range, seed: int, seconds: float) -> Tally:
    """Checks studies in whose text pieces were inserted, removed, replaced or repeated."""
    texts = [path.read_text() for path in STUDIES]
    tally = Tally("textual", seed)
    with _checks() as file:
        for number, rng in tally.numbers(numbers, seconds):
            text = edited_text(rng.choice(texts), rng)
            file.write_text(text, encoding="utf-8", errors="surrogatepass")
            _judge(file, tally, number)
    return tally


def edited_structure(study: Mapping[str, Any], rng: random.Random) -> Any:
    """Returns a copy of a parsed study with one to three random edits."""
    raw = json.loads(json.dumps(study))  # without aliases
    for _ in range(rng.choice((1, 1, 1, 1, 2, 3))):
        every = [*_places(raw)]
        if not every:
            break
        *above, key = rng.choice(every)
        node = _at(raw, above)
        change = rng.choice(("value", "value", "value", "value", "remove", "add", "rename", "move"))
        value = copy.deepcopy(rng.choice(VALUES))
        if change == "remove":
            del node[key]
        elif change == "add" and isinstance(node, dict):
            node[rng.choice(KEYS)] = value
        elif change == "rename" and isinstance(node, dict):
            new = rng.choice((*KEYS, *(f"{key}{end}" for end in ("x", "_2", "-", ".", " ", "\n"))))
            node[new] = node.pop(key)
        elif change == "move":
            node[key] = copy.deepcopy(_at(raw, rng.choice(every)))
        else:
            node[key] = value
    return raw


def edited_text(text: str, rng: random.Random) -> str:
    """Returns a text with one to four random edits."""
    for _ in range(rng.choice((1, 1, 2, 4))):
        begin = rng.randrange(len(text) + 1)
        end = min(len(text), begin + rng.choice((0, 1, 1, 2, 10, 200)))
        lines = text.splitlines(keepends=True) or [""]
        change = rng.choice(("insert", "insert", "replace", "remove", "repeat", "lines", "indent"))
        if change == "insert":
            text = text[:begin] + rng.choice(PIECES) + text[begin:]
        elif change == "replace":
            text = text[:begin] + rng.choice(PIECES) + text[end:]
        elif change == "remove":
            text = text[:begin] + text[end:]
        elif change == "repeat":
            text = text[:end] + text[begin:end] * rng.choice((1, 2, 50)) + text[end:]
        else:
            one, other = rng.randrange(len(lines)), rng.randrange(len(lines))
            if change == "lines":
                lines[one], lines[other] = lines[other], lines[one]
            else:
                lines[one] = rng.choice((" ", "  ", "\t", "- ")) + lines[one]
            text = "".join(lines)
    return text


def _places(node: Any, above: Place = ()) -> Iterator[Place]:
    """Yields the path of everything below a node."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        yield (*above, key)
        if isinstance(value, dict | list):
            yield from _places(value, (*above, key))


def _at(node: Any, place: Sequence[Any]) -> Any:
    for key in place:
        node = node[key]
    return node


class _Stopped(BaseException):
    """The check took too long."""


class _checks:
    """A context with an alarm for checks that hang. It runs all checks once, since they read files
    on their first call; its value is the file to write studies to."""

    def __enter__(self) -> Path:
        def stop(number: int, frame: object) -> None:
            raise _Stopped

        self.before = signal.signal(signal.SIGALRM, stop)
        self.folder = tempfile.TemporaryDirectory()
        for path in STUDIES:
            params = load(path)
            if not [*find_faults(params)]:
                plans(params)
        return Path(self.folder.name, "params.yaml")

    def __exit__(self, *error: object) -> None:
        signal.signal(signal.SIGALRM, self.before)
        self.folder.cleanup()


def _judge(file: Path, tally: Tally, number: int) -> None:
    """Checks one study, and counts what came of it."""
    began = time.process_time()
    signal.alarm(STOPPED_S)
    problem = ""
    try:
        params = load(file)
        refusals = [*find_faults(params)]
        if not refusals:
            plans(params)
    except ValueError as error:
        problem = "" if type(error) is ValueError else f"{type(error).__name__}: {error}"
        refusals = str(error).splitlines() or [""]
    except _Stopped:
        problem, refusals = f"no end in {STOPPED_S} s", []
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        problem, refusals = f"traceback: {type(error).__name__}: {error} ({where})", []
    finally:
        signal.alarm(0)
    took = time.process_time() - began
    without = [line for line in refusals if not has_path(line, file)]
    if not problem and without:
        problem = f"refusal without a path: {without[0]!r}"
    if not problem and took > SLOWEST_S:
        problem = f"took {took:.1f} s"
    if not problem:
        tally.count("refused" if refusals else "valid")
        return
    KEPT.mkdir(parents=True, exist_ok=True)
    copied = KEPT / f"{tally.kind}-{tally.seed}-{number}.yaml"
    copied.write_bytes(file.read_bytes())
    name = shlex.quote(str(copied.relative_to(ROOT)))
    tally.fault(number, problem, kept=f"cp {name} params.yaml; python -m stages.resolve")


def has_path(line: str, file: Path) -> bool:
    """Whether a refusal begins with the file or a path. Parts of a path below a section, and a key
    that is unknown or has no value, may have blanks."""
    sections = "|".join((*StudyFile.model_fields, "budget", "about"))
    begins = [rf"({sections})\..*?: .", r".*: (unknown ['\"]|must not be empty)", r"\S+: ."]
    return line.startswith(f"{file}: ") or any(re.match(each, line) for each in begins)
