"""The paths that stages write and read, relative to the root of the repository."""

from pathlib import Path

DATA = Path("data")
CODE = DATA / "code"  # written by check_params: the code that each stage runs
SEEDS = DATA / "seeds.json"  # written by check_params: the seeds of the runs, for baselines
# Written by check_params: steps and sizes of each run under the matched budget.
PLANS = DATA / "plans"
CORPORA = DATA / "corpora"
TOKENIZERS = DATA / "tokenizers"
ENCODED = DATA / "encoded"
CONTAMINATION = DATA / "contamination"
LIKENESS = DATA / "likeness"
TASKS = DATA / "tasks"
PRETRAINED = DATA / "pretrained"
PROGRESS = DATA / "progress"  # written by pretraining, read by the report alone
BASELINES = DATA / "baselines"
FINETUNED = DATA / "finetuned"
EVALUATED = DATA / "evaluated"
TIMINGS = DATA / "timings"  # measured by pretraining and fine-tuning; depends on the machine
REPORTS = Path("reports")
SCRATCH = Path(".scratch")  # outside DVC: locks, states of interrupted processes, caches


def examples(task: str) -> Path:
    """The folder with a task's rows, without the labels of test, and its task.json."""
    return TASKS / task / "examples"


def test_labels(task: str) -> Path:
    return TASKS / task / "test_labels.jsonl"


def test_originals(task: str) -> Path:
    """The original texts of test rows, where a task changed them."""
    return TASKS / task / "test_originals.jsonl"
