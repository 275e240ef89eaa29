"""Public checkpoints that are pretrained further: packed rows, published heads, our objectives."""

import json
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    GraniteConfig,
    GraniteForCausalLM,
)

from stages.core.seeding import stream
from stages.models._backbone import MODELS
from stages.models._generation import Decoding, drawn
from stages.models._heads import ModelWithHead, initialise_head
from stages.models.hub import Hub
from stages.objectives._objective import OBJECTIVES, Objective
from stages.objectives._seq2seq import documents_of
from stages.text.batch import IGNORE_INDEX, PADDING, Batch
from stages.text.corpus import EncodedCorpus, encode
from stages.text.packing import Packing, Row
from stages.text.published import PublishedTokenizer
from stages.training.checkpoint import Resumable, load_weights, save_weights
from stages.training.device import Device
from stages.training.loop import Step, accumulate, mean_loss, train
from stages.training.pretraining import (
    PretrainingData,
    begin_with_frequencies,
    validation_batches,
)
from stages.training.samples import PASSAGES, samples
from tests.small import documents, headless, small_schedule
from tests.small_hub import FAMILIES, checkpoint, revision_of

pytestmark = pytest.mark.slow

LENGTH = 48
CPU = Device("cpu", "float32", compile=False, threads=1)
SCHEDULE = small_schedule(rows=4, max_tokens=LENGTH, num_steps=5, lr=1e-2).at(1e-2)
LEARNT = {
    "bert": "mlm",
    "sentence_bert": "mlm",
    "roberta": "mlm",
    "distilbert": "mlm",
    "gpt2": "causal",
    "t5": "span_corruption",
    "bart": "denoising",
}
WHOLE = {
    "encoder": AutoModelForMaskedLM,
    "decoder": AutoModelForCausalLM,
    "encoder_decoder": AutoModelForSeq2SeqLM,
}


@cache
def tokenizer_of(family: str) -> PublishedTokenizer:
    return PublishedTokenizer(checkpoint(family))


def published(folder: Path, *, seed: int = 0) -> Hub:
    settings = {"name": "hub", "path": str(folder), "revision": revision_of(folder)}
    size = PublishedTokenizer(folder).vocab_size
    model = cast(Hub, MODELS.build(settings, size, where="model"))
    model.add_pretraining_layers()
    model.initialise(generator=torch.Generator().manual_seed(seed))
    return model.eval()


def objective_of(family: str, **settings: Any) -> Objective:
    entry = {"name": LEARNT[family], **settings}
    return OBJECTIVES.build(entry, tokenizer_of(family), LENGTH, where="objective")


@cache
def corpus_of(family: str) -> EncodedCorpus:
    """Returns a corpus of documents of one line each."""
    texts = [lines[i : i + 1] for lines in documents()[:8] for i in range(4) if len(lines) > 4]
    return encode(texts, tokenizer_of(family))


@cache
def rows_of(family: str) -> list[Row]:
    """Returns rows of several documents each; some documents are cut by a row's ends."""
    packing = Packing(corpus_of(family), LENGTH, seed=1)
    rows = [packing.row(i) for i in range(packing.rows_per_epoch)]
    return sorted(rows, key=lambda row: -row.document_ids.max())[:4]


def batch_of(family: str, **settings: Any) -> Batch:
    rngs = [stream(1, "corruption", i) for i in range(4)]
    return objective_of(family, **settings).collate(rows_of(family), rngs=rngs)


def alone(batch: Batch) -> Iterator[dict[str, torch.Tensor]]:
    """Yields each document by itself, as inputs for transformers."""
    for i, ids in enumerate(batch.document_ids):
        for document in range(1, int(ids.max()) + 1):
            here = ids == document
            inputs = {"input_ids": batch.input_ids[i, here]}
            if batch.decoder_document_ids is not None:
                in_target = batch.decoder_document_ids[i] == document
                assert batch.labels is not None
                inputs["labels"] = batch.labels[i, in_target]
            elif batch.target_positions is not None:
                assert batch.labels is not None
                labels = torch.full_like(ids, IGNORE_INDEX)
                real = batch.labels[i] != IGNORE_INDEX
                labels[batch.target_positions[i, real]] = batch.labels[i, real]
                inputs["labels"] = labels[here]
            else:
                inputs["labels"] = inputs["input_ids"]  # transformers shifts them
            yield {key: value.unsqueeze(0) for key, value in inputs.items()}


@pytest.mark.parametrize("family", FAMILIES)
def test_documents_of_a_row_are_read_each_by_itself(family) -> None:
    folder, batch = checkpoint(family), batch_of(family)
    assert (batch.document_ids.max(dim=1).values > 1).all()
    states = published(folder)(batch)
    whole = AutoModel.from_pretrained(folder).eval()
    whole = whole.get_encoder() if whole.config.is_encoder_decoder else whole
    for i, ids in enumerate(batch.document_ids):
        for document in range(1, int(ids.max()) + 1):
            here = ids == document
            expected = whole(input_ids=batch.input_ids[i : i + 1, here]).last_hidden_state[0]
            torch.testing.assert_close(states[i, here], expected, atol=1e-5, rtol=1e-4)
    assert not states[batch.document_ids == PADDING].any()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_loss_is_that_of_transformers(family) -> None:
    """The published head's loss is compared, summed over the batch's targets."""
    folder, batch = checkpoint(family), batch_of(family)
    whole = WHOLE[FAMILIES[family]].from_pretrained(folder).eval()
    total, number = 0.0, 0
    for inputs in alone(batch):
        counted = int((inputs["labels"] != IGNORE_INDEX).sum()) - (family == "gpt2")
        if counted > 0:
            total += float(whole(**inputs).loss.detach()) * counted
            number += counted
    model = headless(published(folder))
    [(weight, loss_sum)] = objective_of(family).loss(model, batch).values()
    assert batch.num_targets == {LEARNT[family]: number} and weight == 1
    assert float(loss_sum.detach()) / number == pytest.approx(total / number, abs=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_all_that_is_published_is_trained(family) -> None:
    """Every weight gets a gradient, the head's too; later the added layers are dropped."""
    folder = checkpoint(family)
    model = headless(published(folder))
    for _, loss_sum in objective_of(family).loss(model, batch_of(family)).values():
        loss_sum.backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []
    model.backbone.drop_pretraining_layers()
    names = [name for name, _ in model.backbone.named_parameters()]
    unadapted = MODELS.build(
        {"name": "hub", "path": str(folder), "revision": ""},
        tokenizer_of(family).vocab_size,
        where="model",
    )
    assert names == [name for name, _ in unadapted.named_parameters()]


@pytest.mark.parametrize("family", ["bert", "sentence_bert", "gpt2", "t5"])
def test_interrupted_equals_uninterrupted_and_micro_batches_change_nothing(
    family, tmp_path
) -> None:
    """Resuming is exact, dropout included; micro-batches agree to rounding, without dropout."""
    packing = Packing(corpus_of(family), LENGTH, seed=1)

    def run(
        name: str, until: int | None = None, *, rows: int = 4
    ) -> tuple[ModelWithHead, list[Step]]:
        history: list[Step] = []
        model, of = headless(published(checkpoint(family))), objective_of(family)
        data = PretrainingData(packing, of, batch_rows=4, micro_batch_rows=rows, seed=1)
        for step in train(
            model,
            of,
            data,
            SCHEDULE,
            num_steps=5,
            seed=1,
            device=CPU,
            history=history,
            resumable=Resumable("run", name, scratch=tmp_path / name),
        ):
            if step.step == until:
                raise KeyboardInterrupt
        return model, history

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stages.training.loop.CHECKPOINT_SECONDS", -1)
        whole, history = run("whole")
        with pytest.raises(KeyboardInterrupt):
            run("killed", until=3)
        resumed, again = run("killed")
    assert again == history
    for one, other in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(one, other)

    losses = []
    for rows in (4, 1):
        of, model = objective_of(family), headless(published(checkpoint(family))).eval()
        data = PretrainingData(packing, of, batch_rows=4, micro_batch_rows=rows, seed=1)
        losses.append(
            accumulate(
                model,
                of,
                data.micro_batches(0),
                CPU,
            )
        )
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_further_pretraining_beats_the_unigram_entropy() -> None:
    """The loss on other rows is below that of frequencies alone, so context is used."""
    corpus = encode(documents(), tokenizer_of("gpt2"))
    of, model = objective_of("gpt2"), headless(published(checkpoint("gpt2")))
    held_out = validation_batches(Packing(corpus, LENGTH, seed=2), of, batch_rows=32)
    packing = Packing(corpus, LENGTH, seed=1)
    data = PretrainingData(packing, of, batch_rows=16, micro_batch_rows=16, seed=1)
    before = mean_loss(model, of, held_out, CPU)
    list(train(model, of, data, SCHEDULE, num_steps=200, seed=1, device=CPU))
    shares = np.bincount(corpus.tokens) / len(corpus.tokens)
    entropy = -(shares[shares > 0] * np.log(shares[shares > 0])).sum()
    after = mean_loss(model, of, held_out, CPU)
    assert after < entropy - 0.1 and after < before - 1


@pytest.mark.parametrize("family", FAMILIES)
def test_what_was_trained_further_is_stored_as_what_was_not(family, tmp_path) -> None:
    folder, batch = checkpoint(family), batch_of(family)
    trained, generator = published(folder), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in trained.parameters():
            weight += 0.01 * torch.randn(weight.shape, generator=generator)
    trained.drop_pretraining_layers()
    save_weights(trained, tmp_path / "model.safetensors")
    entry = {"name": "hub", "path": str(folder), "revision": ""}
    again = MODELS.build(entry, tokenizer_of(family).vocab_size, where="model")
    load_weights(again, tmp_path / "model.safetensors")
    assert torch.equal(again.eval()(batch), trained(batch))


@torch.no_grad()
def test_logits_are_scaled_as_the_family_scales_them(tmp_path) -> None:
    shutil.copytree(checkpoint("gpt2"), tmp_path, dirs_exist_ok=True)
    small = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "logits_scaling": 8.0}
    config = GraniteConfig(vocab_size=504, **small, **heads)
    whole = GraniteForCausalLM(config).eval()
    whole.save_pretrained(tmp_path)
    model, batch = published(tmp_path), batch_of("gpt2")
    logits = model.unembed(model(batch))
    first = batch.document_ids[0] == 1
    expected = whole(input_ids=batch.input_ids[:1, first]).logits[0]
    torch.testing.assert_close(logits[0, first], expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_ids_mean_what_the_tokenizer_says(family) -> None:
    tokenizer = tokenizer_of(family)
    text = "the methods of an object are called by its class"
    [ids] = tokenizer.encode([text])
    wrapped = np.array(tokenizer.wrap(ids))
    assert wrapped[tokenizer.text_of(wrapped)].tolist() == ids
    assert tokenizer.is_regular[ids].all()
    assert not tokenizer.is_regular[[*tokenizer.before, *tokenizer.after]].any()
    assert len(tokenizer.sentinel_ids) == (100 if family == "t5" else 0)
    assert tokenizer.decode(tokenizer.sentinel_ids.tolist()) == ""
    assert (tokenizer.mask_id is None) == (family in ("gpt2", "t5"))
    assert tokenizer.starts_word[ids[1:]].sum() == len(text.split()) - 1


@pytest.mark.parametrize("family", FAMILIES)
def test_sentences_of_a_document_are_running_text(family) -> None:
    tokenizer, lines = tokenizer_of(family), documents()[0][:3]
    sentences = tokenizer.encode_running(lines)
    assert [i for ids in sentences for i in ids] == tokenizer.encode([" ".join(lines)])[0]
    [document] = [encode([lines], tokenizer).tokens.tolist()]
    assert document == tokenizer.wrap([i for ids in sentences for i in ids])


def test_spans_of_words_are_masked_with_the_boundary_objective() -> None:
    of = OBJECTIVES.build({"name": "span_mlm"}, tokenizer_of("roberta"), LENGTH, where="")
    rows = rows_of("roberta")
    batch = of.collate(rows, rngs=[stream(1, "corruption", i) for i in range(4)])
    backbone = published(checkpoint("roberta"))
    model = ModelWithHead(backbone, of.head(backbone))
    initialise_head(model.head, generator=torch.Generator().manual_seed(0))
    terms = of.loss(model, batch)
    assert set(terms) == {"span_mlm", "boundary"}
    assert batch.num_targets["span_mlm"] > 4
    for _, loss_sum in terms.values():
        assert float(loss_sum.detach()) / batch.num_targets["span_mlm"] == pytest.approx(
            np.log(504), rel=0.1
        )


def test_pairs_of_texts_have_berts_segments_and_another_tokenizers_are_refused() -> None:
    of = OBJECTIVES.build(
        {"name": "mlm", "next_sentence": "sop"},
        tokenizer_of("bert"),
        LENGTH,
        where="objective",
    )
    batch = of.collate(rows_of("bert"), rngs=[stream(1, "corruption", i) for i in range(4)])
    assert batch.num_targets["next_sentence"] > 0
    model = published(checkpoint("bert"))
    whole = AutoModel.from_pretrained(checkpoint("bert")).eval()
    states = model(batch)
    assert batch.segment_ids is not None and batch.segment_ids.any()
    for document in documents_of(Row(batch.input_ids[0].numpy(), batch.document_ids[0].numpy())):
        expected = whole(
            input_ids=batch.input_ids[:1, document],
            token_type_ids=batch.segment_ids[:1, document],
        ).last_hidden_state[0]
        torch.testing.assert_close(states[0, document], expected, atol=1e-5, rtol=1e-4)
    with pytest.raises(ValueError, match="one token before, between and after"):
        objective_of("roberta", next_sentence="sop")


@pytest.mark.parametrize(
    ("family", "name", "message"),
    [
        ("bart", "span_corruption", "no sentinel tokens"),
        ("t5", "denoising", "no mask token"),
        ("gpt2", "mlm", "no mask token"),
    ],
)
def test_an_objective_says_what_it_lacks(family, name, message) -> None:
    with pytest.raises(ValueError, match=f"^objective: .*{message}"):
        OBJECTIVES.build({"name": name}, tokenizer_of(family), LENGTH, where="objective")


def test_a_checkpoint_without_a_head_gets_that_of_its_family() -> None:
    """Logits are products with the token embeddings. The head's other matrices are drawn from the
    seed, the body is as published. The bias starts with the frequencies of tokens."""
    folder = checkpoint("sentence_bert")
    model, same, other = (published(folder, seed=seed) for seed in (1, 1, 2))
    assert model.model.get_output_embeddings().weight is model.token_embedding.weight
    weights, equal = ({n: w for n, w in m.named_parameters()} for m in (model, same))
    assert all(torch.equal(weights[name], equal[name]) for name in weights)
    differ = {n for n, w in other.named_parameters() if not torch.equal(w, weights[n])}
    assert differ == {"cls.predictions.transform.dense.weight"}
    whole = dict(AutoModel.from_pretrained(folder).named_parameters())
    body = dict(model.stored_part.named_parameters())
    assert all(torch.equal(body[name], whole[name]) for name in body)

    data = PretrainingData(
        Packing(corpus_of("sentence_bert"), LENGTH, seed=1),
        objective_of("sentence_bert"),
        batch_rows=4,
        micro_batch_rows=4,
        seed=1,
    )
    begin_with_frequencies(model, data, num_steps=2)
    assert model.logit_bias is not None
    assert float(model.logit_bias.detach().exp().sum()) == pytest.approx(1)
    assert published(checkpoint("bert")).logit_bias is None


def test_a_checkpoint_without_a_head_that_cannot_be_tied_is_refused(tmp_path) -> None:
    folder = Path(shutil.copytree(checkpoint("sentence_bert"), tmp_path / "bert"))
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tie_word_embeddings": False}))
    with pytest.raises(ValueError, match="^path: .*without a language modelling head"):
        published(folder)


@pytest.mark.parametrize(("family", "mark"), [("gpt2", ""), ("t5", "<s0>"), ("bart", "<mask>")])
def test_what_it_writes_can_be_looked_at(family, mark) -> None:
    model, objective = published(checkpoint(family)), objective_of(family)
    entries = samples(model, objective, corpus_of(family), tokenizer_of(family), CPU)
    assert entries == samples(model, objective, corpus_of(family), tokenizer_of(family), CPU)
    from_nothing, others = entries[: objective.draws_text], entries[objective.draws_text :]
    assert all(sample["prompt"] == sample["passage"] == "" for sample in from_nothing)
    assert len(others) == PASSAGES
    assert all(sample["passage"] and mark in sample["prompt"] for sample in others)


@torch.no_grad()
def test_tokens_are_drawn_as_our_own_models_draw_them() -> None:
    model, prompt = published(checkpoint("gpt2")), torch.tensor([[7, 8, 9], [10, 11, 12]])
    draws = torch.rand(2, 6, generator=torch.Generator().manual_seed(0))
    batch = Batch(input_ids=prompt, document_ids=torch.ones_like(prompt), num_targets={})
    decoding = Decoding(max_new_tokens=6, start_id=0, eos_id=-1, draws=draws)
    tokens = model.eval().generate(batch, decoding)
    row = prompt
    for step in range(6):
        logits = model.model(row).logits[:, -1]
        row = torch.cat([row, drawn(logits, draws[:, step]).unsqueeze(1)], dim=1)
    assert tokens == row[:, 3:].tolist()
