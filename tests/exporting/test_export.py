"""A folder that is written for transformers computes there what the model computes here."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn

from stages.commands.export import main
from stages.core.artifacts import read_json, write_json, write_jsonl
from stages.core.seeding import torch_stream
from stages.exporting import export
from stages.exporting import published as public
from stages.exporting.counterparts import counterpart
from stages.exporting.written import outputs, their_outputs
from stages.methods.lora import LoRA
from stages.models._backbone import MODELS
from stages.models._heads import ModelWithHead, initialise_head
from stages.tasks._task import TASKS, Task
from stages.text import tokenizer as sentencepieces
from stages.text.batch import PADDING, Batch, pad
from stages.text.published import PublishedTokenizer
from stages.text.tokenizer import BOS_ID, EOS_ID, MASK_ID, PAD_ID, UNK_ID, Tokenizer
from stages.training.checkpoint import WEIGHTS, save_weights
from stages.trials import kept
from stages.trials.lookup import KeptFile
from stages.trials.setup import TrialSetup
from tests.small import DIMENSIONS, VOCAB_SIZE, documents, small_model
from tests.small_hub import checkpoint, revision_of

pytestmark = pytest.mark.slow

TOKENIZER = "tokenizer.model"
LORA = {"rank": 2, "alpha": 6.0, "targets": "all"}
LABELS = ["B-CODE", "I-CODE", "O"]
BERT = {"norm_position": "post", "positions": "learned", "embedding_norm": True}
NO_OUTPUT_BIAS = {"output_bias": False}
T5 = {"norm": "rmsnorm", "bias": False, "positions": "relative", **NO_OUTPUT_BIAS}
LLAMA = {"norm": "rmsnorm", "activation": "swiglu", **NO_OUTPUT_BIAS}
# What is exported from which options: architecture, options, class in transformers.
PRETRAINED: dict[str, tuple[str, dict[str, Any], str]] = {
    "bert": ("encoder", BERT, "BertModel"),
    "bert_mlm": (
        "encoder",
        BERT | {"output_transform": True, "num_segments": 2, "activation": "relu"},
        "BertForMaskedLM",
    ),
    "bert_untied": ("encoder", BERT | {"output_transform": True, "tied": False}, "BertForMaskedLM"),
    "bert_no_bias": (
        "encoder",
        BERT | {"output_transform": True, **NO_OUTPUT_BIAS},
        "BertForMaskedLM",
    ),
    "esm": ("encoder", {}, "EsmModel"),
    "esm_mlm": ("encoder", {"output_transform": True, "embedding_norm": True}, "EsmForMaskedLM"),
    "gpt2": ("decoder", {"positions": "learned"}, "GPT2LMHeadModel"),
    "gpt2_untied": ("decoder", {"positions": "learned", "tied": False}, "GPT2LMHeadModel"),
    "gpt2_no_bias": ("decoder", {"positions": "learned", **NO_OUTPUT_BIAS}, "GPT2LMHeadModel"),
    "neox": ("decoder", {}, "GPTNeoXForCausalLM"),
    "neox_untied": ("decoder", {"tied": False, "activation": "relu"}, "GPTNeoXForCausalLM"),
    "neox_no_bias": ("decoder", NO_OUTPUT_BIAS, "GPTNeoXForCausalLM"),
    "llama": ("decoder", LLAMA | {"bias": False}, "LlamaForCausalLM"),
    "llama_biases": ("decoder", LLAMA | {"tied": False}, "LlamaForCausalLM"),
    "t5": ("encoder_decoder", T5 | {"activation": "relu"}, "T5ForConditionalGeneration"),
    "t5_gated": (
        "encoder_decoder",
        T5 | {"activation": "swiglu", "tied": False},
        "T5ForConditionalGeneration",
    ),
    "bart": ("encoder_decoder", BERT, "BartForConditionalGeneration"),
    "bart_no_bias": ("encoder_decoder", BERT | NO_OUTPUT_BIAS, "BartForConditionalGeneration"),
    "bart_untied": ("encoder_decoder", BERT | {"tied": False}, "BartForConditionalGeneration"),
}


@pytest.fixture(scope="module", params=["unigram", "bpe", "char"])
def sentencepiece_model(request, tmp_path_factory) -> Path:
    return train(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def unigram(tmp_path_factory) -> Path:
    return train("unigram", tmp_path_factory.mktemp("unigram"))


def train(algorithm: str, folder: Path) -> Path:
    lines = [line for document in documents() for line in document]
    path = folder / TOKENIZER
    sentencepieces.train(lines, path, algorithm=algorithm, vocab_size=VOCAB_SIZE, threads=1)
    return path


@pytest.fixture
def write_run(tmp_path, monkeypatch, unigram) -> Callable[..., Any]:
    """Writes data/pretrained/run of a random model, as pretraining does; gives the model.

    There is no network, here and in the test.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("socket.socket.connect", no_network)

    def write(architecture: str, options: dict[str, Any], *, tokenizer: Path = unigram) -> Any:
        # Weights so large that what is generated does not repeat itself; norms bound a post-norm.
        std = 0.1 if options.get("norm_position") == "post" else 0.3
        model = unlike_itself(small_model(architecture, **options), std=std)
        folder = Path("data/pretrained/run")
        folder.mkdir(parents=True)
        save_weights(model, folder / WEIGHTS)
        (folder / TOKENIZER).write_bytes(tokenizer.read_bytes())
        entry = {"name": architecture, **DIMENSIONS, **options}
        settings = {"model": entry, "training": {"max_tokens": 64}, "seed": 1, "parent": "none"}
        about = {"architecture": architecture, "settings": settings, "fingerprint": "f"}
        about["objective"] = "of its own"
        write_json(folder / "run.json", about | {"model": entry, "has_prefix": False})
        return model

    return write


def no_network(*_: Any) -> None:
    raise AssertionError("neither writing nor loading an export may ask the network")


def unlike_itself(model: Any, *, std: float) -> Any:
    """A model whose biases are not 0 and whose norms are not 1, as they are at the start."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for weight in model.parameters():
            weight += torch.randn(weight.shape, generator=generator) * std
    return model.eval()


def a_batch(*, decoding: bool = False) -> Batch:
    generator = torch.Generator().manual_seed(1)
    rows = [torch.randint(5, VOCAB_SIZE, (n,), generator=generator).numpy() for n in (17, 9)]
    ids = pad(rows, PAD_ID)
    decoder: dict[str, Any] = {}
    if decoding:
        decoder_ids = torch.randint(5, VOCAB_SIZE, (2, 7), generator=generator)
        decoder = {
            "decoder_input_ids": decoder_ids,
            "decoder_document_ids": torch.ones_like(decoder_ids),
        }
    documents = (ids != PAD_ID).long()
    return Batch(input_ids=ids, document_ids=documents, num_targets={}, **decoder)


def load(folder: Path | str = "out") -> Any:
    """By the class of its record, and whether every weight was found."""
    cls = getattr(transformers, read_json(Path(folder, "export.json"))["model_class"])
    options = {"add_pooling_layer": False} if cls.__name__ in ("BertModel", "EsmModel") else {}
    model, report = cls.from_pretrained(folder, output_loading_info=True, **options)
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    return model.eval()


@pytest.mark.parametrize("name", PRETRAINED)
def test_a_pretrained_run_gives_the_same_outputs(name, write_run) -> None:
    architecture, options, model_class = PRETRAINED[name]
    ours = ModelWithHead(write_run(architecture, options), nn.Identity())
    assert model_class in export.export("run", None, Path("out"))
    theirs = load()
    assert type(theirs).__name__ == model_class
    seq2seq = architecture == "encoder_decoder"
    batch = a_batch(decoding=seq2seq)
    with torch.no_grad():
        expected, got = outputs(ours, batch, "pretrained"), their_outputs(theirs, batch)
    if not seq2seq:
        expected, got = expected[batch.document_ids != PADDING], got[batch.document_ids != PADDING]
    assert expected.std() > 0.1  # tolerances mean something
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)

    if theirs.can_generate():
        prompt = batch.input_ids[:1]
        generated = theirs.generate(
            input_ids=prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=10
        )
        assert generated.tolist() == greedy(ours, prompt, num_tokens=10, seq2seq=seq2seq).tolist()
        if not options.get("tied", True):  # tied ones tend to say again what they have read
            assert len(set(generated[0, -10:].tolist())) > 2


@pytest.mark.parametrize("name", PRETRAINED)
def test_weights_come_back_from_a_round_trip(name) -> None:
    architecture, options, _ = PRETRAINED[name]
    if not options.get("output_transform"):  # theirs has the bias in other weights, or has none
        options = options | NO_OUTPUT_BIAS
    model = small_model(architecture, **options)
    weights = dict(model.state_dict())
    table = counterpart(
        architecture, model.dims, vocab_size=VOCAB_SIZE, max_tokens=64, goal="pretrained"
    )
    shapes = {name: weight.shape for name, weight in weights.items()}
    back = table.to_ours(table.to_theirs(weights), shapes)
    torch.testing.assert_close(back, weights)


@torch.no_grad()
def greedy(
    model: ModelWithHead, prompt: torch.Tensor, *, num_tokens: int, seq2seq: bool
) -> torch.Tensor:
    """The likeliest token, again and again: behind the prompt, or behind <bos> in a decoder."""
    found = torch.tensor([[BOS_ID]]) if seq2seq else prompt
    for _ in range(num_tokens):
        ones = torch.ones_like(found)
        batch = Batch(input_ids=found, document_ids=ones, num_targets={})
        if seq2seq:
            batch = Batch(
                input_ids=prompt,
                document_ids=torch.ones_like(prompt),
                num_targets={},
                decoder_input_ids=found,
                decoder_document_ids=ones,
            )
        best = outputs(model, batch, "pretrained")[:, -1].argmax(dim=-1, keepdim=True)
        found = torch.cat([found, best], dim=1)
        if best == EOS_ID:
            break
    return found


def finetuned(
    backbone: Any,
    task_name: str,
    *,
    method: str = "full",
    pooling: str = "mean",
) -> tuple[Task, ModelWithHead]:
    """Writes data/finetuned of a random trial with this backbone; gives its task and model."""
    entry = {"name": task_name} | ({"pooling": pooling} if task_name == "classification" else {})
    examples = Path("data/tasks/task/examples")
    examples.mkdir(parents=True)
    write_json(examples / "task.json", {"task": entry, "labels": LABELS})
    write_jsonl(examples / "train.jsonl", [])
    path = Path("data/pretrained/run", TOKENIZER)
    tokenizer = Tokenizer(path) if path.exists() else PublishedTokenizer(path.parent)
    task: Task = TASKS.build(entry, LABELS, tokenizer, 64, where="task")
    task.read_by(backbone, has_prefix=False)
    backbone.drop_output_layers()
    model = ModelWithHead(backbone, task.head(backbone))
    generator = torch_stream(3, "trained")
    if method == "linear_probe":
        backbone.requires_grad_(False)
    if method == "lora":
        LoRA(**LORA).apply(model, generator=generator)  # type: ignore[arg-type]
    initialise_head(model.head, generator=generator, std=0.2)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight += torch.randn(weight.shape, generator=generator) * 0.1
    keep(model, method, **(LORA if method == "lora" else {}))
    return task, model.eval()


def keep(model: nn.Module, method: str, **settings: Any) -> Path:
    """Stores a trial's weights as fine-tuning does; gives their file."""
    folder = Path("data/finetuned/task/run/weights")
    folder.mkdir(parents=True, exist_ok=True)
    trial = kept.KeptTrial(
        run="run",
        task="task",
        method=method,
        label_budget="200",
        finetune_seed=1,
        component={"name": method, **settings},
        task_settings={},
        initial_weights=None,
        text_to_text=False,
        max_tokens=64,
        precision="float32",
        lr=0.001,
        threshold=0.0,
        drawn_weights="",
        **kept.fingerprints(TrialSetup("run", "task", max_tokens=64)),
    )
    kept.save(model, trial, folder)
    return folder / trial.file


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("bert", "linear_probe"),
        ("bert", "lora"),
        ("gpt2", "lora"),
        *((n, "full") for n in ("bert", "esm", "gpt2", "neox", "llama", "t5")),
    ],
)
def test_a_tagging_trial_predicts_the_same_labels(name, method, write_run) -> None:
    architecture, options, _ = PRETRAINED[name]
    task, ours = finetuned(write_run(architecture, options), "tagging", method=method)
    export.export("run", KeptFile("task", method, "200", "1"), Path("out"))
    theirs, tokenizer = load(), transformers.AutoTokenizer.from_pretrained("out")

    rows = [{"id": str(i), "words": d[0].split()[:12]} for i, d in enumerate(documents()[:8])]
    examples = task.encode(rows)
    batch = task.collate(examples, rngs=[])
    expected = task.predict(ours, batch, examples)
    encoded = tokenizer(
        [row["words"] for row in rows],
        is_split_into_words=True,
        padding=True,
        return_tensors="pt",
    )
    assert torch.equal(encoded.input_ids, batch.input_ids)
    with torch.no_grad():
        best = theirs(**encoded).logits.argmax(dim=-1)
    for row, tags in enumerate(expected):
        of_words = encoded.word_ids(row)
        places = {word: at for at, word in enumerate(of_words) if word is not None}  # the last
        if not ours.backbone.is_causal:
            places = {word: of_words.index(word) for word in places}
        got = [theirs.config.id2label[int(best[row, at])] for _, at in sorted(places.items())]
        assert got == tags.split()
    assert len({tag for tags in expected for tag in tags.split()}) > 1
    place = "last" if ours.backbone.is_causal else "first"
    assert read_json(Path("out/export.json"))["read_at"] == f"{place} subword of a word"


@pytest.mark.parametrize("name", ["gpt2", "neox"])
def test_a_decoder_classifies_the_same(name, write_run) -> None:
    """Though their classifier has no bias: their last norm takes it up."""
    run = write_run("decoder", PRETRAINED[name][1])
    task, ours = finetuned(run, "classification", pooling="last")
    assert ours.head.linear.bias.abs().max() > 0.05
    export.export("run", KeptFile("task", "full", "200", "1"), Path("out"))
    theirs, tokenizer = load(), transformers.AutoTokenizer.from_pretrained("out")
    rows = [
        {"id": str(i), "text": d[0], **({"text_pair": d[1]} if len(d) > 1 else {})}
        for i, d in enumerate(documents()[:8])
    ]
    batch = task.collate(task.encode(rows), rngs=[])
    encoded = [tokenizer(row["text"], row.get("text_pair")) for row in rows]
    padded = tokenizer.pad(encoded, return_tensors="pt", padding=True)
    ids = padded["input_ids"][:, :64]
    with torch.no_grad():
        expected = outputs(ours, batch, "classification")
        got = theirs(ids, attention_mask=padded["attention_mask"][:, :64]).logits
    short = padded["attention_mask"].sum(dim=1) <= 64  # ours cuts the text, not its end
    assert short.sum() >= 4
    torch.testing.assert_close(got[short], expected[short], atol=1e-4, rtol=1e-4)


def rows_of_texts() -> list[dict[str, str]]:
    """Texts, and some pairs, of different lengths."""
    return [
        {"id": str(i), "text": d[0][:60], **({"text_pair": d[1][:40]} if i % 3 else {})}
        for i, d in enumerate(documents()[:8])
    ]


def read_by(pooling: str, theirs: Any, encoded: Any) -> torch.Tensor:
    """The logits of texts as the note of an export says that they are computed."""
    logits, mask = theirs(**encoded).logits, encoded["attention_mask"][..., None]
    if pooling == "mean":
        return (logits * mask).sum(1) / mask.sum(1)
    return logits[:, 0] if pooling == "first" else logits[range(len(mask)), mask.sum((1, 2)) - 1]


@torch.no_grad()
@pytest.mark.parametrize("name", ["bert", "esm"])
@pytest.mark.parametrize("method", ["full", "linear_probe", "lora"])
@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_an_encoder_classifies_the_same_by_the_logits_of_tokens(
    name, method, pooling, write_run
) -> None:
    run = write_run("encoder", PRETRAINED[name][1])
    with torch.enable_grad():
        task, ours = finetuned(run, "classification", method=method, pooling=pooling)
    said = export.export("run", KeptFile("task", method, "200", "1"), Path("out"))
    assert "ForTokenClassification" in said and "The logits of a text" in said
    theirs, tokenizer = load(), transformers.AutoTokenizer.from_pretrained("out")
    rows = rows_of_texts()
    batch = task.collate(task.encode(rows), rngs=[])
    expected = outputs(ours, batch, "classification")
    encoded = tokenizer.pad(
        [tokenizer(row["text"], row.get("text_pair")) for row in rows], return_tensors="pt"
    )
    assert torch.equal(encoded["input_ids"], batch.input_ids)
    got = read_by(pooling, theirs, encoded)
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)
    assert theirs.config.id2label == dict(enumerate(LABELS)) and expected.std() > 0.1


def write_public(family: str) -> Any:
    """Writes data/pretrained/run of a public checkpoint as the run does; gives the model."""
    entry = {"name": "hub", "path": str(checkpoint(family))}
    entry["revision"] = revision_of(checkpoint(family))
    tokenizer = PublishedTokenizer(checkpoint(family))
    model = MODELS.build(entry, tokenizer.vocab_size, where="model")
    model.initialise(generator=torch.Generator())
    folder = Path("data/pretrained/run")
    folder.mkdir(parents=True)
    for file in tokenizer.files:
        (folder / file.name).write_bytes(file.read_bytes())
    save_weights(model, folder / WEIGHTS)
    settings = {"model": entry, "training": {"max_tokens": 64}, "seed": 1, "parent": "none"}
    stored = entry | {"path": str(folder)}
    about = {"architecture": model.architecture, "settings": settings, "fingerprint": "f"}
    about |= {"objective": "hub", "model": stored, "has_prefix": False}
    write_json(folder / "run.json", about)
    return model


@torch.no_grad()
@pytest.mark.parametrize(
    ("family", "pooling", "method", "model_class"),
    [
        ("bert", "mean", "full", "BertForTokenClassification"),
        ("bert", "mean", "lora", "BertForTokenClassification"),
        ("bert", "first", "full", "BertForSequenceClassification"),
        ("bert", "first", "lora", "BertForSequenceClassification"),
        ("bert", "first", "linear_probe", "BertForSequenceClassification"),
        ("roberta", "first", "full", "RobertaForTokenClassification"),
        ("distilbert", "mean", "full", "DistilBertForTokenClassification"),
        ("gpt2", "last", "lora", "GPT2ForTokenClassification"),
    ],
)
def test_texts_are_classified_the_same_on_a_public_checkpoint(
    family, pooling, method, model_class, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = write_public(family)
    with torch.enable_grad():
        task, ours = finetuned(run, "classification", method=method, pooling=pooling)
    said = export.export("run", KeptFile("task", method, "200", "1"), Path("out"))
    assert model_class in said
    assert ("behind each text" in said) == (family == "gpt2")  # its tokenizer adds no end-of-text
    theirs, tokenizer = load(), transformers.AutoTokenizer.from_pretrained("out")
    assert theirs.config.id2label == dict(enumerate(LABELS)) and tokenizer.model_max_length == 64
    batch = task.collate(task.encode(rows_of_texts()), rngs=[])
    mask = (batch.document_ids != PADDING).long()
    encoded: dict[str, Any] = {"input_ids": batch.input_ids, "attention_mask": mask}
    if batch.segment_ids is not None and family == "bert":
        encoded["token_type_ids"] = batch.segment_ids
    if tokenizer.pad_token is not None and family != "gpt2":  # theirs adds no end-of-text
        rows = [tokenizer(row["text"], row.get("text_pair")) for row in rows_of_texts()]
        assert torch.equal(tokenizer.pad(rows, return_tensors="pt")["input_ids"], batch.input_ids)
    expected = outputs(ours, batch, "classification")
    if model_class.endswith("ForSequenceClassification"):
        got = theirs(**encoded).logits
    else:
        got = read_by(pooling, theirs, encoded)
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)
    assert expected.std() > 0.05


@torch.no_grad()
@pytest.mark.parametrize("method", ["full", "lora"])
@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2"])
def test_words_are_tagged_the_same_on_a_public_checkpoint(
    family, method, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = write_public(family)
    with torch.enable_grad():
        task, ours = finetuned(run, "tagging", method=method)
    said = export.export("run", KeptFile("task", method, "200", "1"), Path("out"))
    assert "ForTokenClassification" in said and "The label of a word is read at" in said
    rows = [{"id": str(i), "words": d[0].split()[:9]} for i, d in enumerate(documents()[:6])]
    batch = task.collate(task.encode(rows), rngs=[])
    real = batch.document_ids != PADDING
    got = load()(batch.input_ids, attention_mask=real.long()).logits
    expected = ours.head(ours.backbone(batch))
    torch.testing.assert_close(got[real], expected[real], atol=1e-4, rtol=1e-4)
    assert expected[real].std() > 0.05


def test_what_writes_text_on_a_public_checkpoint_is_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="writes text"):
        public.with_head(ModelWithHead(write_public("gpt2"), nn.Identity()), [])


ODD = [
    "",
    "  two  blanks\tand\na line ",
    "Ωmega 漢字 e\u0301tude ﬁne ½ ～ ｶﾞ",
    "Việt Nam e\u0323\u0302, 한국어 \u1112\u1161\u11ab",
    "‘quotes’ — dash… \u00a0nbsp\u200bzero\ufeff",
    "🙂 👨\u200d👩\u200d👧 <0xE2> ▁blank",
    "1234567890 __init__(self, *args) -> None:",
]


def test_the_tokenizer_gives_the_same_ids(sentencepiece_model, write_run) -> None:
    write_run("encoder", {}, tokenizer=sentencepiece_model)
    path = Path("data/pretrained/run", TOKENIZER)
    ours = Tokenizer(path)
    if ours.vocab_size != VOCAB_SIZE:  # that of characters is as large as the text asks for
        fit_to(ours.vocab_size)
    export.export("run", None, Path("out"))
    theirs = transformers.AutoTokenizer.from_pretrained("out")
    assert len(theirs) == ours.vocab_size
    assert theirs.mask_token_id == MASK_ID and theirs.pad_token_id == PAD_ID
    texts = [line for document in documents() for line in document][::3] + ODD
    texts += ["</s> is text", "<pad> <extra_id_0>"]
    for text, expected in zip(texts, ours.encode(texts), strict=True):
        begin, *got, end = theirs(text).input_ids
        assert (begin, end) == (BOS_ID, EOS_ID)
        if got != expected:  # of one character again and again, in another order as probable
            assert sorted(got) == sorted(expected) and re.search(r"(.)\1\1", text), text
        if UNK_ID not in expected:
            assert theirs.decode(expected) == ours.decode(expected)


def fit_to(vocab_size: int) -> None:
    """Another random run in place of the one that is there, of this vocabulary."""
    entry = {"name": "encoder", **DIMENSIONS}
    model = MODELS.build(entry, vocab_size, where="model")
    model.initialise(generator=torch_stream(1, "weights"))
    save_weights(model, Path("data/pretrained/run", WEIGHTS))


def test_masks_and_sentinels_can_be_written(write_run) -> None:
    ours = write_run("encoder_decoder", PRETRAINED["t5"][1])
    export.export("run", None, Path("out"))
    tokenizer = transformers.AutoTokenizer.from_pretrained("out")
    first, last = tokenizer.convert_tokens_to_ids(["<extra_id_0>", "<extra_id_99>"])
    assert (first, last) == (ours.vocab_size - 1, ours.vocab_size - 100)
    ids = tokenizer("one <extra_id_0> three [MASK].").input_ids
    assert (ids[0], ids[-1]) == (BOS_ID, EOS_ID)
    assert ids.count(first) == ids.count(MASK_ID) == 1
    encode = Tokenizer(Path("data/pretrained/run", TOKENIZER)).encode
    assert ids[1 : ids.index(first)] == encode(["one"])[0]
    assert ids[ids.index(first) + 1 : ids.index(MASK_ID)] == encode(["three"])[0]


def test_a_text_to_go_on_with_has_no_end(write_run) -> None:
    write_run("decoder", {})
    export.export("run", None, Path("out"))
    ids = transformers.AutoTokenizer.from_pretrained("out")("go on").input_ids
    assert ids[0] == BOS_ID and EOS_ID not in ids


@pytest.mark.parametrize(
    ("architecture", "options", "message"),
    [
        ("encoder", {"positions": "sinusoidal"}, "no encoder with positions: sinusoidal; the near"),
        ("encoder", BERT | {"bias": False}, "no encoder with bias: false; the nearest, BERT, has"),
        ("encoder", {"num_segments": 2}, "num_segments: 2; the nearest, ESM, has num_segments: 0"),
        ("decoder", {"activation": "swiglu"}, "has activation: gelu or relu"),
        ("decoder", {"norm_position": "post"}, "norm_position: post"),
        ("encoder_decoder", {}, "no encoder_decoder with "),
        ("encoder_decoder", T5 | {"norm": "layernorm"}, "norm: layernorm; the nearest, T5, has"),
    ],
)
def test_options_without_a_counterpart_are_refused_by_name(
    architecture, options, message, write_run
) -> None:
    write_run(architecture, options)
    with pytest.raises(ValueError, match=message):
        export.export("run", None, Path("out"))
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("bilstm", "bilstm models have no counterpart in transformers"),
        ("hub", r"pretrain\.run\.model: is a public checkpoint"),
    ],
)
def test_a_model_of_no_family_is_refused(name, message, write_run) -> None:
    write_run("encoder", {})
    record = Path("data/pretrained/run/run.json")
    settings = {"model": {"name": name}, "training": {"max_tokens": 64}}
    write_json(record, {"settings": settings, "fingerprint": "f", "has_prefix": False})
    with pytest.raises(ValueError, match=message):
        export.export("run", None, Path("out"))
    assert not Path("out").exists()


def test_a_prefix_language_model_is_exported_with_what_it_cannot_do(write_run) -> None:
    write_run("decoder", {})
    without = export.export("run", None, Path("out"))
    record = Path("data/pretrained/run/run.json")
    write_json(record, read_json(record) | {"has_prefix": True})
    said = export.export("run", None, Path("prefix"))
    assert "causal" in said and "causal" not in without
    assert read_json(Path("prefix/export.json"))["note"] in said
    assert read_json(Path("out/export.json"))["note"] == ""


def test_methods_that_add_weights_are_refused(write_run) -> None:
    finetuned(write_run("encoder", {}), "tagging")
    keep(nn.ParameterDict({"down": nn.Parameter(torch.zeros(2, 32))}), "lora")
    with pytest.raises(ValueError, match=r"methods\.lora: transformers has no counterpart"):
        export.export("run", KeptFile("task", "lora", "200", "1"), Path("out"))
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("name", "task", "pooling", "message"),
    [
        ("bart", "classification", "mean", "no class that is one linear layer on a state of BART"),
        ("bart", "tagging", "mean", "no class for tagging on top of BART"),
        ("gpt2", "classification", "mean", "this trial's pooling is mean"),
        ("llama", "classification", "last", "norm: rmsnorm has no bias"),
    ],
)
def test_heads_without_a_counterpart_are_refused(name, task, pooling, message, write_run) -> None:
    architecture, options, _ = PRETRAINED[name]
    finetuned(write_run(architecture, options), task, pooling=pooling)
    with pytest.raises(ValueError, match=message):
        export.export("run", KeptFile("task", "full", "200", "1"), Path("out"))


def test_weights_of_another_checkpoint_or_task_are_refused(write_run) -> None:
    """Each time by what they belong to and by what is there now."""
    finetuned(write_run("encoder", BERT), "tagging")
    trial = KeptFile("task", "full", "200", "1")
    record = Path("data/pretrained/run/run.json")
    about = read_json(record)
    write_json(record, about | {"fingerprint": "g"})
    with pytest.raises(ValueError, match=r"full-200-1.* belongs to .*run\.json as of f, .* g now"):
        export.export("run", trial, Path("out"))
    write_json(record, about)
    labels = {"labels": [*LABELS, "B-NEW"]}
    examples = Path("data/tasks/task/examples/task.json")
    write_json(examples, read_json(examples) | labels)
    with pytest.raises(ValueError, match=r"belongs to .*examples as of [0-9a-f]{12}, "):
        export.export("run", trial, Path("out"))
    assert not Path("out").exists()


def command(monkeypatch, *arguments: str) -> int:
    """The exit status of the command."""
    monkeypatch.setattr(sys, "argv", ["export", *arguments])
    try:
        main()
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def test_mistakes_end_with_2_and_one_line(write_run, monkeypatch, capsys) -> None:
    finetuned(write_run("encoder", BERT), "tagging")
    Path("full").mkdir()
    Path("full/thesis.txt").write_text("mine")
    mistakes = {
        ("runn", "--out", "out"): "unknown 'runn'; did you mean 'run'",
        ("run", "--out", "full", "--force"): "holds something else than an export",
        ("run", "--out", "out", "--seed", "1"): "add --task",
        ("run", "--out", "out", "--task", "t"): "no such folder",
        ("run", "--out", "out", "--task", "task", "--seed", "2"): "--method full --label-budget",
    }
    for arguments, message in mistakes.items():
        assert command(monkeypatch, *arguments) == 2
        error = capsys.readouterr().err
        assert error.startswith("error: ") and message in error and error.count("\n") == 1
    assert Path("full/thesis.txt").read_text() == "mine"


def test_the_command_says_how_to_load_and_replaces_only_when_told(
    write_run, monkeypatch, capsys
) -> None:
    finetuned(write_run("encoder", BERT), "tagging")
    assert command(monkeypatch, "run", "--out", "out", "--task", "task") == 0
    said = capsys.readouterr().out
    assert "AutoModelForTokenClassification.from_pretrained" in said
    assert read_json(Path("out/export.json"))["trial"]["method"] == "full"
    assert len({path.stat().st_mode for path in Path("out").iterdir()}) == 1  # read by the same
    line = next(line for line in said.splitlines() if "model =" in line)
    scope: dict[str, Any] = {"transformers": transformers}
    exec(line.strip(), scope)
    assert scope["model"].config.label2id == {label: i for i, label in enumerate(LABELS)}

    assert command(monkeypatch, "run", "--out", "out") == 2
    assert "--force replaces it" in capsys.readouterr().err
    assert command(monkeypatch, "run", "--out", "out", "--force") == 0
    assert read_json(Path("out/export.json"))["trial"] is None


def test_help(monkeypatch, capsys) -> None:
    assert command(monkeypatch, "--help") == 0
    assert "--label-budget" in capsys.readouterr().out
