"""What is asked of one GPU, by ``speed.py``: large models beside the Trainer of transformers and
nanoGPT's recipe, and many small models at once. Run by hand in the folder of a study whose corpus
is encoded (`dvc repro encode_corpus`):

    pip install accelerate
    python benchmarks/speed_gpu.py --json-in folder > speed_gpu.md

Small models share a GPU better under NVIDIA's MPS, if it may be started:

    nvidia-cuda-mps-control -d

With ``--small`` the same commands run models and steps of a size for a processor.
"""

import argparse
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

SPEED = Path(__file__).with_name("speed.py")
STEPS = ["--rounds", "3", "--steps", "20", "--warmup", "10", "--threads", "8"]
STEPS_SMALL = ["--rounds", "1", "--steps", "2", "--warmup", "1", "--threads", "2"]


@dataclass(frozen=True)
class Row:
    """A measurement, and a small form of it for a processor."""

    name: str
    goal: str
    asked: list[str]
    small: list[str]


LARGE = ["--layers", "12", "--d-model", "768", "--compile", "--at-once", "1"]
LARGE_SMALL = ["--layers", "2", "--d-model", "128", "--at-once", "1"]
ROWS = (
    Row(
        "causal",
        "half of the peak; not behind nanoGPT's recipe; 1.5 times the Trainer at its best",
        [*LARGE, "--objectives", "causal", "--recipe", "--rows", "16", "--length", "1024"],
        [*LARGE_SMALL, "--objectives", "causal", "--recipe", "--rows", "2", "--length", "256"],
    ),
    Row(
        "masked",
        "half of the peak; 1.5 times the Trainer at its best",
        [*LARGE, "--objectives", "mlm", "span_corruption", "--rows", "32", "--length", "512"],
        [*LARGE_SMALL, "--objectives", "mlm", "span_corruption", "--rows", "2", "--length", "128"],
    ),
    Row(
        "many_small",
        "four models at once train three times as fast as one after the other",
        ["--layers", "4", "--d-model", "256", "--at-once", "4", "--rows", "32", "--length", "128"],
        ["--layers", "2", "--d-model", "64", "--at-once", "2", "--rows", "4", "--length", "64"],
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--small", action="store_true", help="a size for a processor")
    parser.add_argument("--json-in", type=Path, help="a folder for all seconds")
    asked = parser.parse_args()
    for row in ROWS:
        words = [*STEPS_SMALL, *row.small] if asked.small else [*STEPS, *row.asked]
        if asked.json_in:
            asked.json_in.mkdir(parents=True, exist_ok=True)
            words += ["--json", str(asked.json_in / f"{row.name}.json")]
        print(f"## {row.name}: {row.goal}\n", flush=True)
        subprocess.run([sys.executable, str(SPEED), *words], check=True)
        print(flush=True)


if __name__ == "__main__":
    main()
