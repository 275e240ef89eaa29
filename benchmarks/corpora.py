"""Measures time, memory and speed of the stages that read a corpus, by the size of its text.
Prints Markdown; run by hand.

    python benchmarks/corpora.py --text BOOKS --megabytes 50 500

BOOKS is a folder of .txt or .txt.gz files, which are repeated up to each size. Speed is per second
of CPU time of all processes: what one core does, whatever else the machine does. Memory is
proportional, of all processes together.

2 GB of novels (74 MB, repeated) with a vocabulary of 8,000, on 2 cores of an AMD EPYC:

    stage                   MB / CPU s   time (s)   CPU time (s)   peak memory (MB)
    prepare_corpus                 7.5        245            266                192
    train_tokenizer               48.2         25             42                223
    encode_corpus                 11.5         91            153                246
    measure_contamination         14.4         80            139                328

One document of 296 MB on a line, between 200 short ones, took prepare_corpus 62 s of CPU time and
1,630 MB.
"""

import argparse
import gzip
import os
import sys
import tempfile
import time
from itertools import cycle
from pathlib import Path

import pandas as pd
import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from stages.core.artifacts import read_json, write_json, write_jsonl
from stages.core.parallel import cores

STAGES = (
    "prepare_corpus",
    "train_tokenizer",
    "encode_corpus",
    "measure_contamination",
)
SAMPLED_S = 0.2  # between measurements of memory
PROGRAM = """
import importlib, sys
from stages.core.params import Corpus, Tokenizer
from stages.core.plans import CorpusPlan, EncodingPlan, TextsPlan, TokenizerPlan

source = {"name": "files", "path": "text.txt"}
corpus = Corpus(source=source, max_tokens="all", decontaminate_against="none")
tokenizer = Tokenizer(corpus="all", algorithm="unigram", vocab_size=8000, max_sentences=60000)
texts = TextsPlan.model_construct(tasks={"own": ...}, code={})
plans = {
    "prepare_corpus": CorpusPlan(corpus=corpus, packages="", decontaminated_against={}, code={}),
    "train_tokenizer": TokenizerPlan(tokenizer=tokenizer, code={}),
    "encode_corpus": EncodingPlan(corpus=corpus, tokenizer=tokenizer, code={}),
}
stage, *keys = sys.argv[1:]
importlib.import_module(f"stages.{stage}").main(plans.get(stage, texts), *keys)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, required=True, help="a folder of books")
    parser.add_argument("--megabytes", type=int, nargs="+", default=[50, 500])
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=list(STAGES))
    parser.add_argument("--folder", type=Path, help="for what is written; a temporary one if not")
    arguments = parser.parse_args()
    print(f"{cores()} cores; times in seconds.\n")
    for megabytes in arguments.megabytes:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            made = table(Path(folder), arguments.text, megabytes, arguments)
            print(made, flush=True)


def table(folder: Path, books: Path, megabytes: int, arguments: argparse.Namespace) -> str:
    stages = arguments.stages
    write_text(folder / "text.txt", books, megabytes * 10**6)
    write_task(folder / "data/tasks/own")
    rows = []
    for stage in stages:
        keys = {"prepare_corpus": ["all"], "train_tokenizer": ["own"]}.get(stage, ["all", "own"])
        measures = measured(folder, [stage, *keys])
        size = encoded_mb(folder) if stage == "encode_corpus" else megabytes
        rows.append({"stage": stage, "MB / CPU s": size / measures["CPU time"]} | measures)
    shown = pd.DataFrame(rows).rename(columns={"stage": f"{megabytes} MB of text"})
    return shown.to_markdown(index=False, floatfmt=".1f")


def write_text(path: Path, books: Path, size: int) -> None:
    """Writes all books again and again, with a few other words in each turn."""
    files = sorted([*books.glob("*.txt"), *books.glob("*.txt.gz")])
    with path.open("wb") as text:
        for turn, file in enumerate(cycle(files)):
            with (gzip.open if file.suffix == ".gz" else open)(file, "rb") as book:
                content = book.read().decode(errors="ignore")
            content = content.replace(" the ", f" the{turn // len(files)} ")
            text.write(content.encode()[: size - text.tell()].decode(errors="ignore").encode())
            if text.tell() > size - 4:
                return


def write_task(folder: Path) -> None:
    (folder / "examples").mkdir(parents=True)
    write_json(folder / "examples/task.json", {"kind": "classification"})
    rows = [{"id": str(i), "text": f"It is {i} times as much as all of them."} for i in range(300)]
    write_jsonl(folder / "examples/test.jsonl", rows)
    write_jsonl(folder / "test_originals.jsonl", [])


def measured(folder: Path, arguments: list[str]) -> dict[str, float]:
    """Returns the cost of a stage in a process of its own, with all its child processes."""
    before, began, peak = cpu_s(), time.perf_counter(), 0.0
    process = psutil.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
    )
    while process.poll() is None:
        peak = max(peak, memory_mb(process))
        time.sleep(SAMPLED_S)
    if process.returncode:
        raise SystemExit(f"{arguments[0]} failed")
    used = cpu_s() - before
    return {
        "time": time.perf_counter() - began,
        "CPU time": used,
        "peak memory (MB)": peak,
    }


def encoded_mb(folder: Path) -> float:
    """Returns the size of the encoded sentences. A tenth of the documents is held out."""
    encoded = read_json(folder / "data/encoded/all/own/encoded.json")
    return (encoded["train_bytes"] + encoded["validation_bytes"]) / 1e6


def cpu_s() -> float:
    """Returns the CPU time of all child processes that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def memory_mb(process: psutil.Process) -> float:
    """Returns the memory of a process and its children, in which shared memory counts once."""
    total = 0
    try:
        for member in (process, *process.children(recursive=True)):
            total += member.memory_full_info().pss
    except psutil.Error:  # one has ended
        pass
    return total / 1e6


if __name__ == "__main__":
    main()
