"""Families of public checkpoints, with small random weights, from tokens to export.

Tokens and states are those of transformers; fine-tuning, export and further pretraining work, or
are refused with a reason.
"""

import re
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
import transformers

from stages.core.seeding import stream
from stages.exporting.counterpart import check
from stages.exporting.published import save_tokenizer, with_head
from stages.methods._method import METHODS, SolvedMethod
from stages.models._backbone import MODELS
from stages.models._heads import ModelWithHead, initialise_head
from stages.models.hub import Hub, num_tokens_of
from stages.objectives._objective import OBJECTIVES
from stages.tasks._task import TASKS, Task
from stages.text.batch import Batch, pad
from stages.text.corpus import encode
from stages.text.packing import Packing
from stages.text.published import PublishedTokenizer
from stages.training.checkpoint import load_weights, save_weights
from tests.small import documents
from tests.small_families import FAMILIES, MAX_POSITIONS, checkpoint
from tests.small_hub import revision_of

LINES = [line for document in documents()[:4] for line in document if line.isascii()][:40]
LONG = [line.split() for line in LINES if len(line.split()) > 8][:6]
TEXTS = [words[: 3 + i] for i, words in enumerate(LONG)]
ROWS = [
    {"id": str(i), "text": " ".join(words), "label": "ab"[i % 2], "words": words}
    | {"tags": ["B" if len(word) > 3 else "O" for word in words]}
    for i, words in enumerate(TEXTS)
]
NOT_EXPORTED = {  # why transformers has no counterpart of a head for labels
    "modernbert": r"other weights than this trial \(head.dense.weight\)",
    "mmbert": r"other weights than this trial \(head.dense.weight\)",
    "ettin_decoder": "no class for labels of tokens on a 'modernbert-decoder'",
    "opt": "no class for labels of tokens on a 'opt'",
    "gemma3": "no class for labels of tokens on a 'gemma3_text'",
}
LEARNT = {"encoder": "mlm", "decoder": "causal", "encoder_decoder": "span_corruption"}


@cache
def tokenizer_of(family: str) -> PublishedTokenizer:
    return PublishedTokenizer(checkpoint(family))


def built(folder: Path) -> Hub:
    entry = {"name": "hub", "path": str(folder), "revision": revision_of(folder)}
    size = PublishedTokenizer(folder).vocab_size
    return cast(Hub, MODELS.build(entry, size, where="model"))


def published(family: str) -> Hub:
    model = built(checkpoint(family))
    model.initialise(generator=torch.Generator().manual_seed(0))
    return model


@torch.no_grad()
def finetuned(family: str, name: str, **settings: Any) -> tuple[Task, ModelWithHead]:
    """Returns a task, and a model whose matrices are about as large as after training."""
    backbone = published(family)
    for weight in backbone.parameters():
        if weight.dim() >= 2:
            weight.mul_(4)
    entry = {"name": name, "dropout": 0.0, **settings}
    task: Task = TASKS.build(entry, ["a", "b"], tokenizer_of(family), 40, where="task")
    if name == "tagging":
        task = TASKS.build(entry, ["B", "O"], tokenizer_of(family), 40, where="task")
    task.read_by(backbone, has_prefix=False)
    backbone.drop_output_layers()
    model = ModelWithHead(backbone, task.head(backbone))
    initialise_head(model.head, generator=torch.Generator().manual_seed(0), std=0.3)
    return task, model.eval()


def batch_of(rows: list[list[int]], pad_id: int) -> Batch:
    ones = [np.ones(len(row)) for row in rows]
    ids = pad([np.array(row) for row in rows], pad_id)
    return Batch(input_ids=ids, document_ids=pad(ones, 0), num_targets={})


@pytest.mark.parametrize("family", FAMILIES)
def test_words_and_following_sentences_are_encoded_as_in_a_running_text(family: str) -> None:
    """Tokens may include the blank before a word, follow a token for it, or ignore it."""
    tokenizer = tokenizer_of(family)
    rows = [line.split() for line in LINES]
    running = tokenizer.encode([" ".join(["a", *words]) for words in rows])
    (before,) = tokenizer.encode(["a"])
    for words, ids, expected in zip(rows, tokenizer.encode_words(rows), running, strict=True):
        assert len(ids) == len(words) and all(ids)
        assert before + [i for of_word in ids for i in of_word] == expected
    sentences = tokenizer.encode_running(LINES[:4])
    assert [i for ids in sentences for i in ids] == tokenizer.encode([" ".join(LINES[:4])])[0]
    assert tokenizer.starts_word[running[0]].any()

    texts = [*LINES, "  The caf\u00e9, ﬁne ", ""]
    for text, (_, offsets) in zip(texts, tokenizer.encode_with_offsets(texts), strict=True):
        covered = {place for begin, end in offsets for place in range(begin, end)}
        assert covered == {i for i, letter in enumerate(text) if not letter.isspace()}
    task = TASKS.build({"name": "tagging"}, ["B", "O"], tokenizer, 40, where="task")
    words = ["Classes", "", "\u200b", "are"]  # the second has no tokens
    (example,) = task.encode([{"id": "1", "words": words, "tags": ["B", "O", "B", "O"]}])
    assert example.word_positions is not None
    assert len(example.word_positions) == len(set(example.word_positions)) == len(words)


def test_documentation_names_families_that_are_tried() -> None:
    page = Path(__file__).parents[2] / "docs" / "public_checkpoints.md"
    rows = re.findall(
        r"^\| `.*/.*` \| ([\w-]+) \| .* \| `(\w+)` \|$", page.read_text(), re.MULTILINE
    )
    assert len(rows) > 20
    for architecture, family in rows:
        assert architecture.replace("-", "_") == FAMILIES[family].architecture


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_states_and_logits_are_those_of_transformers_whatever_is_padded(family: str) -> None:
    folder, tokenizer, model = checkpoint(family), tokenizer_of(family), published(family).eval()
    assert num_tokens_of(folder) == tokenizer.vocab_size
    assert model.architecture == FAMILIES[family].architecture
    assert (model.d_model, model.num_layers) == (32, 2)
    reference = transformers.AutoModel.from_pretrained(folder).eval()
    reader = reference.get_encoder() if model.config.is_encoder_decoder else reference
    texts = ["a class", " ".join(LINES[:3])]
    rows = [tokenizer.wrap(ids)[:MAX_POSITIONS] for ids in tokenizer.encode(texts)]
    states = model(batch_of(rows, tokenizer.pad_id))
    for state, row in zip(states, rows, strict=True):
        expected = reader(input_ids=torch.tensor([row])).last_hidden_state[0]
        torch.testing.assert_close(state[: len(row)], expected, atol=1e-4, rtol=1e-3)
    if model.is_causal:
        ids = torch.tensor([rows[1]])
        whole = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
        logits = model.unembed(model(batch_of(rows[1:], 0)))
        torch.testing.assert_close(logits, whole(ids).logits, atol=1e-4, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "method", "tasks"),
    [
        *((family, "full", ("classification", "tagging")) for family in FAMILIES),
        *((family, "lora", ("classification",)) for family in FAMILIES),
        *((family, "linear_probe", ("tagging",)) for family in ("modernbert", "llama3", "t5")),
    ],
)
def test_methods_learn_and_predict_alone_as_in_a_batch(
    family: str, method: str, tasks: tuple[str, ...]
) -> None:
    for name in tasks:
        task, model = finetuned(family, name)
        adapted = METHODS.build({"name": method}, where="method")
        assert adapted.incompatibility(model.backbone) is None
        adapted.apply(model, generator=torch.Generator().manual_seed(0))
        examples = task.encode(ROWS)
        batch = task.collate(examples, rngs=[])
        if isinstance(adapted, SolvedMethod):
            adapted.remember(model, [batch])
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        optimizer = torch.optim.Adam(weights, lr=0.003)
        losses = []
        for _ in range(10):
            ((_, loss),) = task.loss(model, batch).values()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        assert min(losses) < 0.9 * losses[0]
        assert all(weight.grad is not None for weight in weights)
        with torch.no_grad():
            together = task.predict(model.eval(), batch, examples)
            alone = [task.predict(model, task.collate([e], rngs=[]), [e])[0] for e in examples]
        assert together == alone


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_a_fine_tuned_model_is_exported_or_refused(family: str, tmp_path: Path) -> None:
    for name in ("classification", "tagging"):
        task, model = finetuned(family, name)
        if family in NOT_EXPORTED:
            with pytest.raises(ValueError, match=NOT_EXPORTED[family]):
                with_head(model, task.labels)
            continue
        auto_class, theirs = with_head(model, task.labels)
        theirs.save_pretrained(tmp_path / name)
        save_tokenizer(task.tokenizer, tmp_path / name, 40)
        check(tmp_path / name, auto_class, model)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_pretraining_continues_and_is_stored_as_a_checkpoint(family: str, tmp_path: Path) -> None:
    tokenizer, model = tokenizer_of(family), built(checkpoint(family))
    model.add_pretraining_layers()
    model.initialise(generator=torch.Generator().manual_seed(0))
    objective = OBJECTIVES.build(
        {"name": LEARNT[model.architecture]}, tokenizer, 48, where="objective"
    )
    texts = [lines[i : i + 1] for lines in documents()[:8] for i in range(4) if len(lines) > 4]
    packing = Packing(encode(texts, tokenizer), 48, seed=1)
    rngs = [stream(1, "corruption", i) for i in range(4)]
    batch = objective.collate([packing.row(i) for i in range(4)], rngs=rngs)
    headed = ModelWithHead(model, objective.head(model))
    optimizer = torch.optim.Adam(headed.parameters(), lr=0.01)
    losses = []
    for _ in range(5):
        ((_, loss),) = objective.loss(headed, batch).values()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.9 * losses[0]
    assert all(weight.grad is not None for weight in headed.parameters())

    model.drop_pretraining_layers()
    for file in tokenizer.files:
        (tmp_path / file.name).write_bytes(file.read_bytes())
    save_weights(model, tmp_path / "model.safetensors")
    assert num_tokens_of(tmp_path) == tokenizer.vocab_size
    load_weights(built(tmp_path), tmp_path / "model.safetensors")


@pytest.mark.slow
def test_num_tokens_of_refuses_states_of_another_width() -> None:
    """facebook/opt-350m projects its states of 1024 to 512 for its output layer."""
    with pytest.raises(ValueError, match="have 16 numbers, but its blocks 32"):
        num_tokens_of(checkpoint("opt", word_embed_proj_dim=16))
