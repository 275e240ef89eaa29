"""The stages and trials that an edit runs again: real DVC on a real git repository."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.project import Project, finished_tiny_study
from tests.small_study import files_of

pytestmark = pytest.mark.slow

SIZES = {"name": "gpt2", "d_model": 32, "num_layers": 1, "num_heads": 2}
DECODER = {"architecture": SIZES, "objective": "causal"}
SPLITS = {name: f"{name}.jsonl" for name in ("train", "validation", "test")}
AGAIN = {"task": "classification", "source": {"name": "files", "path": "rows", **SPLITS}}
UP_TO = ("evaluate", "measure_contamination")  # all stages but the report


class Edit(NamedTuple):
    name: str
    make: Callable[[Project], None]
    stages: str  # that run, besides the root stage and the report
    trials: int = 0  # that train


def setting(path: str, value: object) -> Callable[[Project], None]:
    return lambda project: project.edit(*path.split("."), value=value)


def text(name: str, old: str, new: str) -> Callable[[Project], None]:
    def edit(project: Project) -> None:
        file = project.folder / name
        source = file.read_text()
        assert old in source
        file.write_text(source.replace(old, new))

    return edit


ENCODED = "train_tokenizer@unigram encode_corpus@prose-unigram record_inputs@models"
CORPUS = f"prepare_corpus@prose {ENCODED}"
MEASURED = "measure_contamination@prose-unigram"
CHECKED = f"{MEASURED} record_inputs@corpora record_inputs@models"  # read all tasks
RUNS = "pretrain@encoder_mlm pretrain@encoder_scratch"
BASELINE, TUNED = "fit_baseline@loudness", "finetune@loudness evaluate@loudness"
NEW_RUN = "record_inputs@models pretrain@decoder_causal"
NEW_TASK = "prepare_task@again fit_baseline@again finetune@again evaluate@again"
LR, SEEDS = "models.encoder_mlm.training.lr", "pretrain.seeds"
CODE = text("stages/objectives/causal.py", "draws_text = True", "draws_text = 1 == 1")
LABEL = text("rows/test.jsonl", '55", "label": "noisy', '55", "label": "calm')
PROSE = text("topics.txt", "statement", "sentence")
# Each edit follows on the one before. The study begins with two runs, one pretraining seed, two
# methods, one label budget and one fine-tuning seed. An edit that takes something back runs no
# stage that has run with equal inputs before: DVC restores its outputs from the run cache.
EDITS = [
    Edit("a setting of one run", setting(LR, 2e-3), f"pretrain@encoder_mlm {TUNED}", 2),
    Edit("the corpus", PROSE, f"{CORPUS} {MEASURED} {RUNS} {TUNED}", 4),
    Edit("a pretraining seed", setting(SEEDS, [1, 2]), f"{RUNS} {BASELINE} {TUNED}", 4),
    Edit("a pretraining seed less", setting(SEEDS, [1]), ""),
    Edit("a new run", setting("models.decoder_causal", DECODER), f"{NEW_RUN} {TUNED}", 2),
    Edit("code of one objective", CODE, f"pretrain@decoder_causal {TUNED}", 2),
    Edit("a test label", LABEL, f"prepare_task@loudness {CHECKED} evaluate@loudness"),
    Edit("a new task", setting("tasks.again", AGAIN), f"{NEW_TASK} {CHECKED}", 6),
]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Returns a study that keeps each edit for the next one."""
    return finished_tiny_study(tmp_path_factory.mktemp("study") / "project")


def trials(project: Project) -> set[str]:
    """Returns the trials in the store, in which estimates are, too."""
    entries = (project.folder / ".scratch/trials").iterdir()
    return {entry.name for entry in entries if not (entry / "estimates.json").exists()}


def checkpoints(project: Project) -> dict[str, bytes]:
    """Returns the content of all files of checkpoints, and of the times of runs that train."""
    files = files_of(project.folder / "data").items()
    kept = ("pretrained/", "timings/pretrain/encoder_mlm", "timings/pretrain/decoder_causal")
    return {name: content for name, content in files if name.startswith(kept)}


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.name)
def test_edit_runs_the_stages_and_trials_that_it_changes(study: Project, edit: Edit) -> None:
    """The report is left out until the end, because nearly every edit changes it."""
    before, files = trials(study), checkpoints(study)
    edit.make(study)
    planned, ran = study.pending(), study.repro(*UP_TO)
    expected = {*edit.stages.split()}
    assert expected == {*ran} - {"resolve"}
    assert {*planned} >= expected, "make plan says all that may run"
    assert "report" in planned
    if "less" not in edit.name:  # what the run cache restores is planned, too
        assert {stage for stage in planned if stage.startswith("pretrain@")} <= expected
    assert len(trials(study) - before) == edit.trials
    if edit.name == "a pretraining seed":  # its stages take the other seed from the store
        assert files.items() < checkpoints(study).items()


def test_report_runs_after_all_edits(study: Project) -> None:
    assert study.pending() == ["report"] == study.repro()
    assert study.pending() == study.repro() == []
