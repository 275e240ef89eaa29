"""Components: names from files, schemas from constructors."""

import pytest

from stages.core.components import Components
from stages.models._backbone import MODELS
from stages.objectives._objective import OBJECTIVES
from stages.objectives.mlm import MLM
from stages.text.tokenizer import Vocabulary
from tests.small import VOCAB_SIZE

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
    assert (built.masking.mask_prob, built.masking.replace_prob) == (0.4, 0.8)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"mask_porb": 0.1},
            "pretrain.bert.objective.mask_porb: unknown 'mask_porb'; did you mean",
        ),
        ({"mask_prob": "0.1"}, "pretrain.bert.objective.mask_prob: must be a valid number"),
        ({"mask_prob": float("nan")}, "mask_prob: must be a finite number"),
        ({"mask_prob": 2.0}, "pretrain.bert.objective: mask_prob must lie between 0 and 1"),
    ],
)
def test_build_names_wrong_settings_with_their_path(settings, message) -> None:
    with pytest.raises(ValueError) as error:
        objective(**settings)
    assert message in str(error.value)


def test_build_lists_the_nearest_and_all_names_for_an_unknown_one() -> None:
    with pytest.raises(ValueError) as error:
        OBJECTIVES.build({"name": "causual"}, where="pretrain.gpt.objective")
    message = str(error.value)
    assert message.startswith(
        "pretrain.gpt.objective.name: unknown 'causual'; did you mean 'causal'"
    )
    assert "mlm" in message and "span_corruption" in message


def test_build_names_a_missing_parameter() -> None:
    where = "models.bert.architecture"
    with pytest.raises(ValueError, match=f"{where}.d_model: missing"):
        MODELS.build({"name": "bert"}, VOCAB_SIZE, where=where)
