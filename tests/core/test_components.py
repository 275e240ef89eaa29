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


def objective(**settings):
    entry = {"name": "mlm", **settings}
    return OBJECTIVES.build(entry, Vocabulary(VOCAB_SIZE), 32, where="models.bert.objective")


def test_build_gives_settings_to_the_constructor_and_keeps_defaults() -> None:
    built = objective(mask_prob=0.4)
    assert isinstance(built, MLM)
    assert (built.mask_prob, built.next_sentence) == (0.4, "none")


@pytest.mark.parametrize(
    ("settings", "path", "word"),
    [
        ({"mask_porb": 0.1}, ".mask_porb", "did you mean 'mask_prob'"),
        ({"mask_prob": "0.1"}, ".mask_prob", "number"),
        ({"mask_prob": float("nan")}, ".mask_prob", "finite"),
        ({"mask_prob": 2.0}, "", "between 0 and 1"),
        ({"name": "causual"}, ".name", "did you mean 'causal'"),
    ],
)
def test_build_names_wrong_settings_with_their_path(settings, path, word) -> None:
    with pytest.raises(ValueError, match=f"^models.bert.objective{path}: .*{word}"):
        objective(**settings)


def test_build_names_a_missing_parameter() -> None:
    with pytest.raises(ValueError, match="x.d_model: missing"):
        MODELS.build({"name": "bert"}, VOCAB_SIZE, where="x")
