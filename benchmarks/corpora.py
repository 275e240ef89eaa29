"""Measures time, memory and speed of the stages that read a corpus, by the size of its text, and
how fast sentencepiece itself encodes the same sentences. Prints Markdown; run by hand, the result
is in corpora.md.

    python benchmarks/corpora.py --text BOOKS --megabytes 50 500 > benchmarks/corpora.md

BOOKS is a folder of .txt or .txt.gz files, which are repeated up to each size. Speed is per second
of CPU time of all processes: what one core does, whatever else the machine does. encode_corpus is
compared with the command spm_encode of sentencepiece's C++ sources (in Debian's package
sentencepiece), which reads the same sentences, one per line, and writes their ids.
"""

import argparse
import gzip
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path

import pandas as pd
import psutil
import sentencepiece

sys.path.insert(0, str(Path(__file__).parents[1]))

from stages.core.artifacts import read_json, write_json, write_jsonl
from stages.core.parallel import cores
from stages.text.stored import StoredDocuments
from stages.text.tokenizer import FILE

STAGES = (
    "prepare_corpus",
    "train_tokenizer",
    "encode_corpus",
    "measure_contamination",
    "measure_likeness",
)
SAMPLED_S = 0.2  # between measurements of memory
ALONE_MB = 20  # of sentences that sentencepiece encodes by itself
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
    parser.add_argument("--spm-encode", default=shutil.which("spm_encode"), help="the command")
    parser.add_argument("--folder", type=Path, help="for what is written; a temporary one if not")
    arguments = parser.parse_args()
    print(f"{cores()} cores, sentencepiece {sentencepiece.__version__}; times in seconds.\n")
    for megabytes in arguments.megabytes:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            made = table(Path(folder), arguments.text, megabytes, arguments)
            print(made, flush=True)


def table(folder: Path, books: Path, megabytes: int, arguments: argparse.Namespace) -> str:
    stages, spm_encode = arguments.stages, arguments.spm_encode
    write_text(folder / "text.txt", books, megabytes * 10**6)
    write_task(folder / "data/tasks/own")
    rows = []
    for stage in stages:
        keys = {"prepare_corpus": ["all"], "train_tokenizer": ["own"]}.get(stage, ["all", "own"])
        measures = measured(folder, [stage, *keys])
        size = encoded_mb(folder) if stage == "encode_corpus" else megabytes
        rows.append({"stage": stage, "MB / CPU s": size / measures["CPU time"]} | measures)
    if "encode_corpus" in stages:
        (encoded,) = (row for row in rows if row["stage"] == "encode_corpus")
        peers = {"sentencepiece's batches in Python": alone(folder)}
        if spm_encode:
            peers["spm_encode"] = command(folder, spm_encode)
        rows += [{"stage": peer, "MB / CPU s": speed} for peer, speed in peers.items()]
        ratios = [f"{encoded['MB / CPU s'] / own:.2f} of {peer}" for peer, own in peers.items()]
        note = f"\n\nSpeed of encode_corpus: {', '.join(ratios)}.\n"
    else:
        note = "\n"
    shown = pd.DataFrame(rows).rename(columns={"stage": f"{megabytes} MB of text"})
    return shown.to_markdown(index=False, floatfmt=".1f") + note


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


def alone(folder: Path) -> float:
    """MB per second of CPU time that sentencepiece's batches encode, on one thread."""
    model = str(folder / "data/tokenizers/own" / FILE)
    processor = sentencepiece.SentencePieceProcessor(model_file=model)
    speeds = []
    for batch in batches(folder):
        began = time.process_time()
        processor.encode(batch, num_threads=1)
        speeds.append((sum(len(s.encode()) for s in batch), time.process_time() - began))
    return sum(size for size, _ in speeds) / 1e6 / sum(seconds for _, seconds in speeds)


def command(folder: Path, spm_encode: str) -> float:
    """MB per second of CPU time that the command encodes, from a file to a file."""
    lines, ids = folder / "sentences.txt", folder / "ids.txt"
    with lines.open("w", encoding="utf-8") as file:
        for batch in batches(folder):
            file.writelines(" ".join(sentence.splitlines()) + "\n" for sentence in batch)
    model = folder / "data/tokenizers/own" / FILE
    before = cpu_s()
    with lines.open("rb") as read, ids.open("wb") as written:
        arguments = [spm_encode, f"--model={model}", "--output_format=id"]
        subprocess.run(arguments, stdin=read, stdout=written, check=True)
    return lines.stat().st_size / 1e6 / (cpu_s() - before)


def batches(folder: Path) -> Iterator[list[str]]:
    """Sentences of the corpus, 10000 at a time."""
    documents = StoredDocuments(folder / "data/corpora/all/train.jsonl")
    stream = (s for sentences in documents.sentences(range(len(documents))) for s in sentences)
    size = 0
    while size < ALONE_MB * 10**6 and (batch := list(islice(stream, 10_000))):
        size += sum(map(len, batch))
        yield batch


if __name__ == "__main__":
    main()
