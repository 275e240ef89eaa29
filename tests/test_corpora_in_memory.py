"""No stage that reads a corpus holds all of it in memory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stages.core.artifacts import write_json, write_jsonl
from tests.small import small_tokenizer

ROOT = Path(__file__).parents[1]
NUM_BYTES = 24e6  # of text
# The peaks of all processes together, of which imported modules take up to 100, and transformers
# another 200 where tokens are encoded. The text in lists took 198 in prepare; its tokens as
# integers of Python took 13 times the text.
MOST_MB = {"prepare": 150, "encode": 420, "contamination": 150}
PROGRAM = """
import resource, sys
from pathlib import Path

from stages import encode_corpus, measure_contamination, prepare_corpus
from stages.core import parallel
from stages.core.params import Corpus, Tokenizer
from stages.core.plans import CorpusPlan, EncodingPlan, TextsPlan

parallel.cores = lambda: 2
source = {"name": "files", "path": "text.txt", "unit": "line"}
corpus = Corpus(source=source, max_tokens="all", decontaminate_against="none")
tokenizer = Tokenizer(corpus="all", algorithm="unigram", vocab_size=300, max_sentences=2000)
reading = CorpusPlan(corpus=corpus, packages="", decontaminated_against={}, code={})
encoding = EncodingPlan(corpus=corpus, tokenizer=tokenizer, code={})
comparing = TextsPlan.model_construct(tasks={"own": ...}, code={})
match sys.argv[1]:
    case "prepare":
        prepare_corpus.main(reading, "all")
    case "encode":
        encode_corpus.main(encoding, "all", "unigram")
    case "contamination":
        measure_contamination.main(comparing, "all", "unigram")

# Not ru_maxrss of this process, which may be that of the one that started it.
status = Path("/proc/self/status").read_text().split()
own = int(status[status.index("VmHWM:") + 1])
children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print((own + 2 * max(0, children - own / 2)) / 1e3)  # they share what they were forked with
"""


@pytest.mark.slow
def test_each_stage_holds_a_part_of_the_corpus(tmp_path: Path) -> None:
    write_text(tmp_path / "text.txt")
    small_tokenizer().save_to(tmp_path / "data/tokenizers/unigram")
    own = tmp_path / "data/tasks/own"
    (own / "examples").mkdir(parents=True)
    write_json(own / "examples/task.json", {"kind": "classification"})
    write_jsonl(own / "examples/test.jsonl", [{"id": "0", "text": "It stands in line 7 of all."}])
    write_jsonl(own / "test_originals.jsonl", [])
    peaks = {stage: peak_mb(stage, tmp_path) for stage in MOST_MB}
    assert all(peaks[stage] < most for stage, most in MOST_MB.items()), peaks


def write_text(path: Path) -> None:
    """Writes text with a document on each line."""
    with path.open("w") as file:
        number = 0
        while file.tell() < NUM_BYTES:
            number += 9
            lines = (
                f"It stands in line {number + i} of all, Mr. {i}! So it does." for i in range(9)
            )
            file.write(" ".join(lines) + "\n")


def peak_mb(stage: str, folder: Path) -> float:
    """Returns the peak memory of a process and the two that it starts."""
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM, stage],
        check=True,
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    return float(finished.stdout.split()[-1])
