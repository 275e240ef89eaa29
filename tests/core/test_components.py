"""Components: names from files, schemas from constructors."""

import pytest

from stages.core.components import BrokenContract, Components, below
from stages.models._backbone import MODELS
from stages.objectives._objective import OBJECTIVES
from stages.objectives.mlm import MLM
from stages.tasks._task import TASKS
from stages.tasks.classification import Classification
from stages.text.tokenizer import Vocabulary
from tests.small import DIMENSIONS, VOCAB_SIZE, small_tokenizer

FOLDERS = ("baselines", "methods", "models", "objectives", "optimizers", "sources", "tasks")


@pytest.mark.parametrize("folder", FOLDERS)
def test_names_of_components_are_the_files_of_their_folder(folder) -> None:
    assert Components(folder).names()
    for name in Components(folder).names():
        assert isinstance(Components(folder).find(name, where="x"), type)
        assert not name.startswith("_")


def objective(**settings):
    entry = {"name": "mlm", **settings}
    return OBJECTIVES.build(entry, Vocabulary(VOCAB_SIZE), 32, where="pretrain.bert.objective")


def test_build_gives_settings_to_the_constructor_and_keeps_defaults() -> None:
    built = objective(mask_prob=0.4)
    assert isinstance(built, MLM)
    assert (built.mask_prob, built.replace_prob) == (0.4, 0.8)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"mask_porb": 0.1},
            "pretrain.bert.objective.mask_porb: unknown 'mask_porb'; did you mean",
        ),
        ({"mask_prob": "0.1"}, "pretrain.bert.objective.mask_prob: input should be a valid number"),
        ({"mask_prob": float("nan")}, "mask_prob: input should be a finite number"),
        ({"mask_prob": 2.0}, "pretrain.bert.objective: mask_prob must lie between 0 and 1"),
    ],
)
def test_build_names_wrong_settings_with_their_path(settings, message) -> None:
    with pytest.raises(ValueError) as error:
        objective(**settings)
    assert message in str(error.value)


def test_below_puts_the_path_before_a_fault_but_not_before_a_broken_contract() -> None:
    for fault, message in (
        (ValueError("lr: too high"), "pretrain.bert.lr: too high"),
        (BrokenContract("stages/objectives/own.py: no loss"), "stages/objectives/own.py: no loss"),
    ):
        with pytest.raises(ValueError) as error, below("pretrain.bert"):
            raise fault
        assert str(error.value) == message


def test_build_lists_the_nearest_and_all_names_for_an_unknown_one() -> None:
    with pytest.raises(ValueError) as error:
        OBJECTIVES.build({"name": "causual"}, where="pretrain.gpt.objective")
    message = str(error.value)
    assert message.startswith(
        "pretrain.gpt.objective.name: unknown 'causual'; did you mean 'causal'"
    )
    assert "mlm" in message and "span_corruption" in message


def test_build_names_a_missing_parameter() -> None:
    entry = {"name": "encoder", **DIMENSIONS}
    del entry["d_model"]
    with pytest.raises(ValueError, match="pretrain.bert.model.d_model: missing"):
        MODELS.build(entry, VOCAB_SIZE, where="pretrain.bert.model")


def test_build_has_all_faults_at_once() -> None:
    with pytest.raises(ValueError) as error:
        objective(mask_prob="x", random=1)
    assert len(str(error.value).splitlines()) == 2


def test_tried_settings_may_be_lists() -> None:
    entry = {"name": "classification", "pooling": ["mean", "last"], "dropout": 0}
    assert TASKS.settings(entry, where="tasks.a.task")["pooling"] == ["mean", "last"]
    tried = TASKS.tried(entry, where="tasks.a.task")
    assert tried == {"pooling": ["mean", "last"], "dropout": [0.0], "class_weights": ["none"]}
    task = TASKS.build(entry, ["a"], small_tokenizer(), 8, where="tasks.a.task")
    assert isinstance(task, Classification) and task.pooling == "mean"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pooling": []}, "tasks.a.task.pooling: must not be an empty list"),
        ({"pooling": ["mean", "mean"]}, "tasks.a.task.pooling: must not repeat a value"),
        ({"dropout": [0, 0.0]}, "tasks.a.task.dropout: must not repeat a value"),
        ({"pooling": ["mean", "lats"]}, "tasks.a.task.pooling: input should be 'auto', 'mean'"),
        ({"pooling": [["mean"]]}, "tasks.a.task.pooling: input should be 'auto', 'mean'"),
        ({"metric": ["accuracy", "macro_f1"]}, "tasks.a.task.metric: input should be"),
    ],
)
def test_tried_settings_are_refused_with_their_path(settings, message) -> None:
    with pytest.raises(ValueError) as error:
        TASKS.settings({"name": "classification", **settings}, where="tasks.a.task")
    assert str(error.value).startswith(message) and len(str(error.value).splitlines()) == 1
