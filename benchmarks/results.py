"""Writes the tables of README.md and docs/results.md from the reports of finished studies.

    python benchmarks/results.py            # writes the tables
    python benchmarks/results.py --check    # exits with 1 if a page differs from the files

The default study's report is `reports/comparison.md`, the others' are in
`benchmarks/studies/NAME/`, to which `--keep NAME FOLDER` copies that of a study that was finished
in FOLDER, with its scores and effects as CSV. The second way's trainings are in
`benchmarks/second_way.csv`. Below a heading of a page the tables come in the order of PAGES. A
decimal number in a section's text must be in one of that section's files.

    python benchmarks/results.py --keep factorial FOLDER
    python benchmarks/results.py --second-way factorial FOLDER FILE.jsonl...
"""

import argparse
import csv
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import combinations
from pathlib import Path

from ruamel.yaml import YAML

ROOT = Path(__file__).parents[1]
STUDIES = ROOT / "benchmarks" / "studies"
SECOND_WAY = ROOT / "benchmarks" / "second_way.csv"
USUAL = {"pooling": "mean", "start": "study"}  # what the second way does unless it is varied
KEPT = ("comparison.md", "scores.csv", "effects.csv")
IN_STUDIES = {"probe": "linear_probe"}  # names of methods that the second way calls otherwise
NUMBER = r"\d+\.\d+"

Rows = list[dict[str, str]]
Settings = dict[str, str]
Maker = Callable[[], Rows]
Pairs = dict[str, list[tuple[Settings, Settings]]]


# Tables -------------------------------------------------------------------------------------------


def read(path: Path) -> Rows:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def folder_of(study: str) -> Path:
    return ROOT / "reports" if study == "default" else STUDIES / study


def report_of(study: str) -> str:
    return (folder_of(study) / "comparison.md").read_text(encoding="utf-8")


def table(study: str, first: str, *, without: tuple[str, ...] = (), top: int | None = None) -> Rows:
    """Returns a table of a study's report, which is named by its first columns."""
    text = report_of(study)
    block = next(b for b in text.split("\n\n") if b.startswith(f"| {first} |"))
    header, _, *lines = (
        [*map(str.strip, re.split(r"(?<!\\)\|", line)[1:-1])] for line in block.splitlines()
    )
    rows = [dict(zip(header, line, strict=True)) for line in lines]
    return [{k: row[k] for k in header if k not in without} for row in rows][:top]


scores = partial(table, first="Model | Weights")
effects = partial(table, first="Compared | Pairs", without=("p", "Also differs"))


class Trainings:
    """The trainings of the second way for a study, with the study's own scores."""

    def __init__(self, study: str, *, varied: bool = False) -> None:
        self.rows = [row for row in read(SECOND_WAY) if row["study"] == study]
        self.rows = [row for row in self.rows if bool(row["varied"]) == varied]
        self.tasks = list(dict.fromkeys(row["task"] for row in self.rows))
        self.study = {
            (row["model"], row["method"], row["label_budget"], row["task"]): float(row["mean"])
            for row in read(folder_of(study) / "scores.csv")
        }

    def of(self, task: str, **wanted: str) -> tuple[float, float] | None:
        """Returns the mean of the second way's trainings on a task, and that of the study."""
        rows = [row for row in self.rows if row["task"] == task and wanted.items() <= row.items()]
        if not rows:
            return None
        first = rows[0]
        method = IN_STUDIES.get(first["method"], first["method"])
        key = (first["model"], method, first["labels"], task)
        return sum(float(row["test"]) for row in rows) / len(rows), self.study[key]


def second_way(study: str, *, varied: bool = False) -> Rows:
    """Returns scores times 100, in brackets those of the study: of trainings with the study's
    settings, or (``varied``) with others, each with what was varied."""
    trainings, columns = Trainings(study, varied=varied), ["label", "method", "labels", "varied"]
    several = [c for c in columns[1:] if len({row[c] for row in trainings.rows}) > 1]
    several += ["varied"] if varied and "varied" not in several else []
    rows = []
    for key in dict.fromkeys(tuple(row[c] for c in columns) for row in trainings.rows):
        cells = dict(zip(columns, key, strict=True))
        row = {"Model": cells["label"]} | {c.capitalize(): cells[c] for c in several}
        for task in trainings.tasks:
            both = trainings.of(task, **cells)
            row[task] = f"{100 * both[0]:.1f} ({100 * both[1]:.1f})" if both else ""
        rows.append(row)
    return rows


def second_effects(study: str, pairs: Pairs) -> Iterator[tuple[str, float, float]]:
    """Yields the name of each comparison and its mean difference over all pairs of trainings and
    tasks, times 100: of the second way, and of the study with the same models and tasks."""
    trainings = Trainings(study)
    for name, compared in pairs.items():
        sides = [
            (trainings.of(task, **one), trainings.of(task, **other))
            for one, other in compared
            for task in trainings.tasks
        ]
        known = [(a, b) for a, b in sides if a and b]
        again, here = (100 * sum(a[i] - b[i] for a, b in known) / len(known) for i in (0, 1))
        yield name, again, here


def signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−").replace("+0.0", "0.0").replace("−0.0", "0.0")


def second_table(study: str, pairs: Pairs) -> Rows:
    effects = second_effects(study, pairs)
    names = ("Compared", "Second way", "Study")
    return [
        dict(zip(names, (name, signed(again), signed(here)), strict=True))
        for name, again, here in effects
    ]


def both_ways(study: str, pairs: Pairs, *, top: int | None = None) -> Rows:
    """Returns the effects of a study's report, beside them those of the second way for the
    comparisons in ``pairs``, and in brackets those of the study with the same models and tasks."""
    again = {name: f"{signed(a)} ({signed(b)})" for name, a, b in second_effects(study, pairs)}
    rows = [row | {"Second way": again.pop(row["Compared"], "")} for row in effects(study, top=top)]
    if again:
        raise SystemExit(f"error: the effects of {study} lack {', '.join(again)}")
    return rows


def models(
    *pairs: tuple[str, str], methods: tuple[str, ...] = ()
) -> list[tuple[Settings, Settings]]:
    """Returns pairs of models by their labels: with each of several methods, or with the one that
    there is."""
    some = [{"method": method} for method in methods] or [{}]
    return [({"label": a} | of, {"label": b} | of) for a, b in pairs for of in some]


def markdown(rows: Rows) -> list[str]:
    cells = [[cell or "–" for cell in row.values()] for row in rows]
    lines = [list(rows[0]), ["--:" if i else ":--" for i in range(len(rows[0]))], *cells]
    return [f"| {' | '.join(line)} |" for line in lines]


BOTH = ("ModernBERT", "Llama")
PUBLISHED = ("SmolLM2 (4 bits)", "MiniLM, operations", "MiniLM")
PAGES: dict[str, dict[str, list[Maker]]] = {
    "README.md": {"transfer-studies": [partial(scores, "default", top=6)]},
    "docs/results.md": {
        "The default study": [
            partial(scores, "default", top=12),
            partial(
                both_ways,
                "default",
                {
                    "published vs. random weights": models(
                        ("MiniLM, published", "MiniLM from scratch")
                    ),
                    "pretrained vs. from scratch": models(
                        *(
                            (f"{name}{text}", f"{name} from scratch")
                            for name in BOTH
                            for text in ("", ", science")
                        )
                    ),
                    "size: 1.28M vs. 0.607M": models(*((name, f"{name} small") for name in BOTH)),
                    "training set: science vs. all": models(
                        *((f"{name}, science", name) for name in BOTH)
                    ),
                    "Llama vs. ModernBERT": models(
                        *(
                            (f"Llama{kind}", f"ModernBERT{kind}")
                            for kind in ("", " small", ", science", " from scratch")
                        )
                    ),
                    "Llama vs. BART": models(("Llama", "BART")),
                    "ModernBERT vs. BART": models(("ModernBERT", "BART")),
                },
            ),
            partial(second_way, "default", varied=True),
        ],
        "Architecture, size and training set, crossed": [
            partial(
                both_ways,
                "factorial",
                {
                    "Llama vs. ModernBERT": models(
                        *(
                            (f"Llama{kind}", f"ModernBERT{kind}")
                            for kind in ("", " small", ", science", " small, science")
                        )
                    ),
                    "size: 1.28M vs. 0.607M": models(
                        *(
                            (f"{name}{text}", f"{name} small{text}")
                            for name in BOTH
                            for text in ("", ", science")
                        )
                    ),
                    "training set: science vs. all": models(
                        *(
                            (f"{name}{size}, science", f"{name}{size}")
                            for name in BOTH
                            for size in ("", " small")
                        )
                    ),
                },
            ),
        ],
        "Labels": [
            partial(
                both_ways,
                "label_budgets",
                {
                    "pretrained vs. from scratch": [
                        ({"label": one, "labels": n}, {"label": other, "labels": n})
                        for one, other in (("ModernBERT", "ModernBERT from scratch"),)
                        for n in ("50", "200", "800")
                    ],
                    **{
                        f"{many} labels vs. {few} labels": [
                            ({"label": name, "labels": many}, {"label": name, "labels": few})
                            for name in ("ModernBERT", "ModernBERT from scratch")
                        ]
                        for many, few in (("200", "50"), ("800", "50"), ("800", "200"))
                    },
                },
            ),
        ],
        "Methods": [partial(scores, "methods", top=9), partial(second_way, "methods")],
        "Published models": [
            partial(scores, "published", top=6),
            partial(
                both_ways,
                "published",
                {
                    "published vs. random weights": [
                        *models(("MiniLM", "MiniLM from scratch"), methods=("lora", "probe")),
                        *models(("SmolLM2 (4 bits)", "SmolLM2 from scratch"), methods=("probe",)),
                    ],
                    "LoRA vs. linear probe": [
                        ({"label": name, "method": "lora"}, {"label": name, "method": "probe"})
                        for name in (*PUBLISHED, "MiniLM from scratch")
                    ],
                    **{
                        f"{one} vs. {other}": models((one, other), methods=("lora", "probe"))
                        for one, other in combinations(PUBLISHED, 2)
                    },
                },
            ),
        ],
        "Further pretraining": [
            partial(
                both_ways,
                "further",
                {
                    f"training set: {one} vs. {other}": models((one, other))
                    for one, other in (
                        ("MiniLM", "MiniLM, documentation"),
                        ("MiniLM", "MiniLM, task texts"),
                        ("MiniLM, task texts", "MiniLM, documentation"),
                    )
                },
            ),
        ],
        "Heads and text": [
            partial(
                both_ways,
                "text_to_text",
                {
                    "pretrained vs. from scratch": models(
                        ("T5", "T5 from scratch"), methods=("head", "text")
                    ),
                    "head vs. text": [
                        ({"label": name, "method": "head"}, {"label": name, "method": "text"})
                        for name in ("T5", "T5 from scratch")
                    ],
                },
            ),
        ],
        "Systems": [
            partial(
                both_ways,
                "systems",
                {
                    name: models((one, other), (f"{one} from scratch", f"{other} from scratch"))
                    for name, one, other in (
                        ("GPT-2 vs. BERT", "GPT", "BERT"),
                        ("BERT vs. T5", "BERT", "T5"),
                        ("biLSTM vs. BERT", "ELMo", "BERT"),
                        ("GPT-2 vs. T5", "GPT", "T5"),
                    )
                }
                | {"BART vs. BERT": models(("BART", "BERT"))},
                top=5,
            ),
            partial(
                second_table,
                "systems",
                {
                    f"{one} vs. {other}": models((one, other))
                    for one, other in (
                        ("GPT", "GPT from scratch"),
                        ("ELMo", "ELMo from scratch"),
                        ("BERT", "BERT from scratch"),
                        ("T5", "T5 from scratch"),
                        ("SpanBERT", "BERT"),
                        ("SpanBERT", "SpanBERT without SBO"),
                        ("BERT", "BERT without NSP"),
                    )
                },
            ),
            partial(second_way, "systems", varied=True),
        ],
    },
}


# Pages --------------------------------------------------------------------------------------------


def sections(text: str) -> dict[str, list[str]]:
    """Returns the lines of a page from each heading of the first two levels on."""
    parts: dict[str, list[str]] = {}
    for line in text.splitlines():
        if heading := re.fullmatch("##? (.*)", line):
            parts[heading[1]] = lines = []
        lines.append(line)
    return parts


def renewed(page: str) -> str:
    """Returns a page with its tables made anew."""
    parts = sections((ROOT / page).read_text(encoding="utf-8"))
    for heading, makers in PAGES[page].items():
        lines, tables = list[str](), iter(makers)
        for i, line in enumerate(parts[heading]):
            is_row = line.startswith("|")
            if is_row and not parts[heading][i - 1].startswith("|"):
                lines += markdown(next(tables)())
            elif not is_row:
                lines.append(line)
        if unused := [*tables]:
            raise SystemExit(f"error: {page}: {heading!r} lacks {len(unused)} of its tables")
        parts[heading] = lines
    return "\n".join(line for lines in parts.values() for line in lines) + "\n"


def without_source(page: str) -> Iterator[str]:
    """Yields the decimal numbers of a section's text that neither its study's report nor its tables
    have."""
    parts = sections((ROOT / page).read_text(encoding="utf-8"))
    for heading, makers in PAGES[page].items():
        studies = {str(maker.args[0]) for maker in makers if isinstance(maker, partial)}
        known = " ".join(cell for maker in makers for row in maker() for cell in row.values())
        numbers = {*re.findall(NUMBER, known + " ".join(map(report_of, studies)))}
        text = " ".join(line for line in parts[heading] if not line.startswith("|"))
        for number in re.findall(NUMBER, text):
            if number not in numbers:
                yield f"{page}: {heading}: no file has {number}"


def keep(study: str, folder: Path) -> None:
    """Copies the report of a finished study, without links to files that are not kept."""
    (STUDIES / study).mkdir(parents=True, exist_ok=True)
    for name in KEPT:
        shutil.copy(folder / "reports" / name, STUDIES / study)
    report = STUDIES / study / "comparison.md"
    blocks = report.read_text(encoding="utf-8").split("\n\n")
    blocks = [
        block for block in blocks if not block.startswith(("![", "Tables, each", "```bibtex"))
    ]
    text = "\n\n".join(blocks).replace(" [The page with figures](index.html).", "")
    report.write_text(text.rstrip() + "\n", encoding="utf-8")


def keep_second_way(study: str, folder: Path, files: Iterable[Path]) -> None:
    """Puts trainings of the second way in the place of those that are kept of the study."""
    models = YAML(typ="safe").load(folder / "params.yaml")["models"]
    rows = [row for row in read(SECOND_WAY) if row["study"] != study] if SECOND_WAY.exists() else []
    rates: dict[tuple[str, str], float] = {}  # those of the first file are the study's
    for line in (line for file in files for line in file.read_text(encoding="utf-8").splitlines()):
        row = json.loads(line)
        usual = rates.setdefault((row["model"], row.get("method", "full")), row["lr"])
        varied = {"rate": row["lr"]} if row["lr"] != usual else {}
        varied |= {
            name: row[name] for name, usual in USUAL.items() if row.get(name, usual) != usual
        }
        rows.append(
            {
                "study": study,
                "model": row["model"],
                "label": models[row["model"]].get("label", row["model"]),
                "method": row.get("method", "full"),
                "task": row["task"],
                "labels": row["labels"],
                "varied": ", ".join(f"{name}: {value}" for name, value in varied.items()),
                "seed": row["seed"],
                "test": f"{row['test']:.4f}",
            }
        )
    with SECOND_WAY.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0]], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--keep", nargs=2, metavar=("NAME", "FOLDER"))
    parser.add_argument("--second-way", nargs="+", metavar="NAME FOLDER FILE")
    options = parser.parse_args()
    if options.keep:
        keep(options.keep[0], Path(options.keep[1]))
        return
    if options.second_way:
        study, folder, *files = options.second_way
        keep_second_way(study, Path(folder), map(Path, files))
        return
    faults = list[str]()
    for page in PAGES:
        text = renewed(page)
        if options.check and text != (ROOT / page).read_text(encoding="utf-8"):
            faults.append(f"{page}: a table differs from its file")
        elif not options.check:
            (ROOT / page).write_text(text, encoding="utf-8")
        faults += without_source(page)
    print("\n".join(faults), end="\n" if faults else "")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
