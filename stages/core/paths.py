"""Where the stages of dvc.yaml write what others read, from the root of the repository."""

from pathlib import Path

DATA = Path("data")
CODE = DATA / "code"  # of check_params: which code each stage runs
SEEDS = DATA / "seeds.json"  # of check_params: the seeds of the runs, for baselines
PLANS = DATA / "plans"  # of check_params: steps and sizes that the matched budget gives each run
CORPORA = DATA / "corpora"
TOKENIZERS = DATA / "tokenizers"
ENCODED = DATA / "encoded"
CONTAMINATION = DATA / "contamination"
LIKENESS = DATA / "likeness"
TASKS = DATA / "tasks"
PRETRAINED = DATA / "pretrained"
PROGRESS = DATA / "progress"  # of pretraining: what only the report reads
BASELINES = DATA / "baselines"
FINETUNED = DATA / "finetuned"
EVALUATED = DATA / "evaluated"
TIMINGS = DATA / "timings"  # of pretraining and of fine-tuning: what was measured of the machine
REPORTS = Path("reports")
SCRATCH = Path(".scratch")  # outside DVC: locks, states of interrupted processes, caches


def examples(task: str) -> Path:
    """The folder with the rows of a task and task.json, without the labels of the test."""
    return TASKS / task / "examples"


def test_labels(task: str) -> Path:
    return TASKS / task / "test_labels.jsonl"


def test_originals(task: str) -> Path:
    """The texts of test rows as they stand in the source, where a task changed them."""
    return TASKS / task / "test_originals.jsonl"
