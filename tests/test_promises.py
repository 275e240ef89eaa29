"""Promises of README.md and of docs/extending.md that no other test keeps."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from ruamel.yaml import YAML

from stages.baselines.majority import Majority
from stages.core.components import STAGES, Components
from stages.findings.effects import judged
from stages.findings.facts import Claim, Estimate, Verdict
from stages.models._transformer import Transformer
from stages.objectives.causal import Causal
from stages.reporting import formats
from stages.tasks._task import TASKS
from stages.text.checkpoints import config_of
from stages.text.corpus import EncodedCorpus
from stages.text.packing import Packing
from stages.text.tokenizer import Vocabulary
from stages.training.device import Device
from stages.training.loop import add_gradients, count_targets
from stages.training.pretraining import PretrainingData
from stages.training.ranks import ALONE, Ranks
from tests.project import ROOT
from tests.small import VOCAB_SIZE, headless, small_corpus, small_model

READING = "paths.test_labels("  # the one place that knows where test labels are


def test_test_labels_are_read_by_evaluate_alone() -> None:
    """Neither dvc.yaml nor the code lets another stage read them; prepare_task writes them."""
    stages = YAML(typ="safe").load((ROOT / "dvc.yaml").read_text())["stages"]
    bodies = {name: stage.get("do", stage) for name, stage in stages.items()}
    depend = {n for n, body in bodies.items() if any("test_labels" in d for d in body["deps"])}
    assert depend == {"evaluate"}
    sources = {file.name: file.read_text(encoding="utf-8") for file in STAGES.rglob("*.py")}
    assert {name for name, text in sources.items() if READING in text} == {
        *("prepare_task.py", "evaluate.py")
    }
    assert {name for name, text in sources.items() if "test_labels.jsonl" in text} == {
        *("prepare_task.py", "paths.py")  # the former in a docstring
    }


def test_no_code_of_a_checkpoint_runs(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    (tmp_path / "own.py").write_text(f"open({str(ran)!r}, 'w')\n\n\nclass Own: ...\n")
    config = {"model_type": "own", "auto_map": {"AutoConfig": "own.Own"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="^path: .* is no model of transformers"):
        config_of(tmp_path)
    assert not ran.exists()


def test_an_encoded_corpus_is_not_read_into_memory(tmp_path: Path) -> None:
    small_corpus().save(tmp_path / "corpus")
    loaded = EncodedCorpus.load(tmp_path / "corpus")
    assert isinstance(loaded.tokens, np.memmap) and isinstance(loaded.document_starts, np.memmap)


OBJECTIVE = """
from stages.objectives._objective import Objective
class Broken(Objective):
    def __init__(self, vocabulary, max_tokens, rate: float = 0.1): ...
    def collate(self, examples, *, rngs): ...
"""
TASK = """
from stages.tasks._task import Task
class Broken(Task):
    inputs, target = ("text",), "label"
    def encode(self, rows): ...
    def predict(self, model, batch, examples): ...
"""


@pytest.mark.parametrize(
    ("folder", "source", "message"),
    [
        ("objectives", OBJECTIVE, "objectives/broken.py: the setting rate .* keyword-only"),
        ("tasks", TASK, "tasks/broken.py: Broken must define metrics; .* stages/tasks/_task.py"),
    ],
)
def test_component_that_breaks_its_contract_is_refused(
    folder: str, source: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType(f"stages.{folder}.broken")
    exec(source, vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(Components, "names", lambda folder: ["broken"])
    with pytest.raises(ValueError, match=message):
        Components(folder).settings({"name": "broken"}, where="x")


@pytest.mark.parametrize("family", ["qwen3", "gemma"])
def test_new_family_has_heads_of_d_model_by_num_heads(family: str) -> None:
    """The published widths, 128 and 256, would make a small model ten times as large."""
    of_family = type("OfFamily", (Transformer,), {"family": family})
    sizes = {"d_model": 32, "num_layers": 1, "num_heads": 2}
    model = of_family(100, **sizes)
    model.initialise(generator=torch.Generator().manual_seed(1))
    assert model.model.model.layers[0].self_attn.q_proj.weight.shape == (32, 32)
    assert of_family(100, **sizes, config={"head_dim": 8}).config.head_dim == 8
    with pytest.raises(ValueError, match="family: .*no model_type 'qwen'"):
        type("Misspelt", (Transformer,), {"family": "qwen"})(100, **sizes)


def test_correlations_have_intervals_below_0() -> None:
    estimate = Estimate(0.1, -1.4, 0.5)
    for metric in ("matthews", "pearson", "spearman"):
        assert formats.interval(estimate, metric) == "\N{MINUS SIGN}100.0 to 50.0"
    assert formats.interval(estimate, "accuracy") == "0.0 to 50.0"


def test_judged_corrects_the_tests_of_a_family_together() -> None:
    """Three tests are significant at 5% by themselves, and one of them as a family."""
    estimate = Estimate(0.1, 0.01, 0.2)
    family = [
        Claim(estimate=estimate, df=4, p=p, verdict=Verdict.NOT_TESTED) for p in (0.03, 0.01, 0.04)
    ]
    facts = judged(family, 0.05)
    assert [fact.p_holm for fact in facts] == pytest.approx([0.06, 0.03, 0.06])
    assert [fact.verdict for fact in facts] == [
        *(Verdict.UNSURE, Verdict.SIGNIFICANT, Verdict.UNSURE)
    ]
    assert judged(family[:1], 0.05)[0].verdict is Verdict.SIGNIFICANT


def test_every_task_with_one_right_answer_has_the_majority_as_baseline() -> None:
    assert {*TASKS} - {*Majority.fits} == {"language_modelling", "seq2seq"}


@dataclass(frozen=True)
class OfTwo(Ranks):
    """One of two processes, without the other: the numbers of targets of both are known."""

    number: int = 2
    counted: Mapping[str, float] = field(default_factory=dict)

    def total(self, values: Mapping[str, float]) -> dict[str, float]:
        return {**self.counted}


def test_gradients_of_two_ranks_have_the_mean_that_one_process_has() -> None:
    """Adam and clipping, with which the tests of trainings work, hide a wrong scale."""
    objective = Causal(Vocabulary(VOCAB_SIZE), 32)
    packing = Packing(small_corpus(), 32, seed=1)
    data = PretrainingData(packing, objective, batch_rows=8, micro_batch_rows=2, seed=1)
    batches = data.micro_batches(3)

    def gradients(part: slice, ranks: Ranks) -> list[torch.Tensor]:
        model = headless(small_model("decoder"))
        add_gradients(
            model, objective, batches[part], Device("cpu", "float32", False, 1), ranks=ranks
        )
        return [p.grad for p in model.parameters() if p.grad is not None]

    alone = gradients(slice(None), ALONE)
    ranks = [OfTwo(rank, counted=count_targets(batches)) for rank in range(2)]
    parts = [gradients(slice(2 * each.rank, 2 * each.rank + 2), each) for each in ranks]
    means = [(a + b) / 2 for a, b in zip(*parts, strict=True)]
    assert len(alone) > 5
    torch.testing.assert_close(means, alone, atol=1e-5, rtol=1e-3)
