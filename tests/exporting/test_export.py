"""A model that is exported for transformers computes what the original computes."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from huggingface_hub import ModelCard
from torch import nn

from stages.commands.export import main
from stages.core import paths
from stages.core.artifacts import read_json, write_json, write_jsonl
from stages.core.keys import TrialKey
from stages.core.seeding import torch_stream
from stages.evaluation import records
from stages.exporting.counterpart import (
    CAUSAL_LM,
    MASKED_LM,
    SEQ2SEQ_LM,
    STATES,
    outputs,
    their_outputs,
    without_head_bias,
)
from stages.exporting.export import export
from stages.exporting.families import FAMILIES
from stages.exporting.published import with_head
from stages.methods._method import METHODS
from stages.models._backbone import MODELS
from stages.models._heads import ModelWithHead, initialise_head
from stages.tasks._task import TASKS, Task
from stages.tasks.classification import Classification
from stages.text.batch import PADDING, Batch, pad
from stages.text.published import PublishedTokenizer
from stages.text.tokenizer import BOS_ID, EOS_ID, MASK_ID, PAD_ID, UNK_ID, Tokenizer
from stages.training.checkpoint import WEIGHTS, save_weights
from stages.trials import kept
from stages.trials.setup import TrialSetup
from tests.exporting.conftest import CHECKPOINT, FOLDER, TOKENIZER, train
from tests.small import DIMENSIONS, VOCAB_SIZE, documents, headless
from tests.small_hub import checkpoint, revision_of

pytestmark = pytest.mark.slow

LORA: dict[str, Any] = {"rank": 2, "alpha": 6.0, "targets": "all"}
LABELS = ["B-CODE", "I-CODE", "O"]
BERT = {"norm_position": "post", "positions": "learned", "embedding_norm": True}
GPT2 = {"positions": "learned"}
NO_OUTPUT_BIAS = {"output_bias": False}
LLAMA = {"norm": "rmsnorm", "activation": "swiglu", **NO_OUTPUT_BIAS}
T5 = {"norm": "rmsnorm", "bias": False, "positions": "relative", **NO_OUTPUT_BIAS}
TRANSFORM, UNTIED = {"output_transform": True}, {"tied": False}
# Our architecture, its options, the class in transformers, and the class that loads it.
PRETRAINED: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "bert": ("encoder", BERT, "BertModel", STATES),
    "bert_mlm": (
        "encoder",
        BERT | TRANSFORM | {"num_segments": 2, "activation": "relu"},
        "BertForMaskedLM",
        MASKED_LM,
    ),
    "bert_untied": ("encoder", BERT | TRANSFORM | UNTIED, "BertForMaskedLM", MASKED_LM),
    "bert_no_bias": ("encoder", BERT | TRANSFORM | NO_OUTPUT_BIAS, "BertForMaskedLM", MASKED_LM),
    "esm": ("encoder", {}, "EsmModel", STATES),
    "esm_mlm": ("encoder", TRANSFORM | {"embedding_norm": True}, "EsmForMaskedLM", MASKED_LM),
    "esm_no_bias": ("encoder", TRANSFORM | UNTIED | NO_OUTPUT_BIAS, "EsmForMaskedLM", MASKED_LM),
    "gpt2": ("decoder", GPT2, "GPT2LMHeadModel", CAUSAL_LM),
    "gpt2_untied": ("decoder", GPT2 | UNTIED, "GPT2LMHeadModel", CAUSAL_LM),
    "gpt2_no_bias": ("decoder", GPT2 | NO_OUTPUT_BIAS, "GPT2LMHeadModel", CAUSAL_LM),
    "starcoder2": ("decoder", {}, "Starcoder2ForCausalLM", CAUSAL_LM),
    "starcoder2_untied": (
        "decoder",
        UNTIED | {"activation": "relu"},
        "Starcoder2ForCausalLM",
        CAUSAL_LM,
    ),
    "starcoder2_no_bias": ("decoder", NO_OUTPUT_BIAS, "Starcoder2ForCausalLM", CAUSAL_LM),
    "llama": ("decoder", LLAMA | {"bias": False}, "LlamaForCausalLM", CAUSAL_LM),
    "llama_biases": ("decoder", LLAMA | UNTIED, "LlamaForCausalLM", CAUSAL_LM),
    "t5": (
        "encoder_decoder",
        T5 | {"activation": "relu"},
        "T5ForConditionalGeneration",
        SEQ2SEQ_LM,
    ),
    "t5_gated": (
        "encoder_decoder",
        T5 | UNTIED | {"activation": "swiglu"},
        "T5ForConditionalGeneration",
        SEQ2SEQ_LM,
    ),
}
# A model of the table above or a public checkpoint, what it was fine-tuned for, by which method,
# and the class in transformers.
FINETUNED = [
    *(
        (name, "tagging", method, f"{family}ForTokenClassification")
        for name, method, family in [
            ("bert", "full", "Bert"),
            ("bert", "linear_probe", "Bert"),
            ("bert", "lora", "Bert"),
            ("esm_mlm", "full", "Esm"),
            ("esm", "full", "Esm"),
            ("gpt2", "full", "GPT2"),
            ("gpt2", "lora", "GPT2"),
            ("starcoder2", "full", "Starcoder2"),
            ("llama", "full", "Llama"),
            ("t5", "full", "T5"),
            ("public_bert", "full", "Bert"),
            ("public_bert", "lora", "Bert"),
            ("public_roberta", "full", "Roberta"),
            ("public_roberta", "lora", "Roberta"),
            ("public_gpt2", "full", "GPT2"),
            ("public_gpt2", "lora", "GPT2"),
        ]
    ),
    *(
        (name, pooling, method, f"{family}ForTokenClassification")
        for name, family in (("bert", "Bert"), ("esm", "Esm"))
        for pooling in ("mean", "first")
        for method in ("full", "lora")
    ),
    ("gpt2", "last", "full", "GPT2ForSequenceClassification"),
    ("gpt2", "mean", "full", "GPT2ForTokenClassification"),
    ("starcoder2", "last", "full", "Starcoder2ForSequenceClassification"),
    ("llama", "last", "full", "LlamaForTokenClassification"),
    ("t5", "mean", "full", "T5ForTokenClassification"),
    ("public_bert", "mean", "full", "BertForTokenClassification"),
    ("public_bert", "mean", "lora", "BertForTokenClassification"),
    ("public_bert", "first", "full", "BertForSequenceClassification"),
    ("public_bert", "first", "lora", "BertForSequenceClassification"),
    ("public_bert", "first", "linear_probe", "BertForSequenceClassification"),
    ("public_roberta", "first", "full", "RobertaForTokenClassification"),
    ("public_distilbert", "mean", "full", "DistilBertForTokenClassification"),
    ("public_gpt2", "last", "lora", "GPT2ForTokenClassification"),
]


@pytest.fixture(scope="module", params=["unigram", "bpe", "char"])
def sentencepiece_model(request, tmp_path_factory) -> Path:
    return train(request.param, tmp_path_factory.mktemp(request.param))


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
    """Loads an export by the class of its record, which must have every weight."""
    cls = getattr(transformers, read_json(Path(folder, "export.json"))["model_class"])
    model, report = cls.from_pretrained(folder, output_loading_info=True)
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    return model.eval()


@pytest.mark.parametrize("name", PRETRAINED)
def test_export_of_a_pretrained_run_gives_the_same_outputs(name, write_run) -> None:
    architecture, options, model_class, auto_class = PRETRAINED[name]
    ours = headless(write_run(architecture, options))
    message = export(CHECKPOINT, None, Path("out"))
    assert model_class in message and f"transformers.{auto_class}.from_pretrained" in message
    theirs = load()
    assert type(theirs).__name__ == model_class
    seq2seq = architecture == "encoder_decoder"
    batch = a_batch(decoding=seq2seq)
    with torch.no_grad():
        expected, got = outputs(ours, batch, auto_class), their_outputs(theirs, batch)
    if not seq2seq:
        expected, got = expected[batch.document_ids != PADDING], got[batch.document_ids != PADDING]
    assert expected.std() > 0.1  # tolerances mean something
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)
    if auto_class == STATES:
        assert not theirs(batch.input_ids).pooler_output.any()

    if theirs.can_generate():
        prompt = batch.input_ids[:1]
        generated = theirs.generate(
            input_ids=prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=10
        )
        assert generated.tolist() == greedy(ours, prompt, auto_class, num_tokens=10).tolist()
        if not options.get("tied", True):  # tied models tend to repeat what they have read
            assert len(set(generated[0, -10:].tolist())) > 2


def test_documentation_lists_the_families_and_classes_that_are_tested() -> None:
    page = Path(__file__).parents[2] / "docs" / "predict_and_export.md"
    rows = re.findall(r"^\| `(\w+)` \| .* \| ([\w-]+) \| (.*) \|$", page.read_text(), re.MULTILINE)
    assert [row[:2] for row in rows] == [(family.architecture, family.name) for family in FAMILIES]
    classes = {name for row in rows for name in re.findall(r"`([A-Z]\w+)`", row[2])}
    assert classes == {model_class for _, _, model_class, _ in PRETRAINED.values()}


@torch.no_grad()
def greedy(
    model: ModelWithHead, prompt: torch.Tensor, auto_class: str, *, num_tokens: int
) -> torch.Tensor:
    """Appends likeliest tokens to the prompt, or to <bos> in an encoder-decoder."""
    written = torch.tensor([[BOS_ID]]) if auto_class == SEQ2SEQ_LM else prompt
    for _ in range(num_tokens):
        ones = torch.ones_like(written)
        batch = Batch(input_ids=written, document_ids=ones, num_targets={})
        if auto_class == SEQ2SEQ_LM:
            batch = Batch(
                input_ids=prompt,
                document_ids=torch.ones_like(prompt),
                num_targets={},
                decoder_input_ids=written,
                decoder_document_ids=ones,
            )
        best = outputs(model, batch, auto_class)[:, -1].argmax(dim=-1, keepdim=True)
        written = torch.cat([written, best], dim=1)
        if best == EOS_ID:
            break
    return written


def finetuned(
    backbone: Any,
    task_name: str,
    *,
    method: str = "full",
    pooling: str = "mean",
    labels: list[str] = LABELS,
    record: dict[str, Any] | None = None,
    **settings: Any,
) -> tuple[Task, ModelWithHead]:
    """Writes data/finetuned of a random trial with this backbone; returns its task and
    model. Its task.json also has ``record``."""
    entry: dict[str, Any] = {"name": task_name, **settings}
    entry |= {"pooling": pooling} if task_name == "classification" else {}
    examples = Path("data/tasks/task/examples")
    examples.mkdir(parents=True)
    write_json(examples / "task.json", {"task": entry, "labels": labels} | (record or {}))
    write_jsonl(examples / "train.jsonl", [])
    path = FOLDER / TOKENIZER
    tokenizer = Tokenizer(path) if path.exists() else PublishedTokenizer(path.parent)
    task: Task = TASKS.build(entry, labels, tokenizer, 64, where="task")
    task.read_by(backbone, has_prefix=False)
    backbone.drop_output_layers()
    model = ModelWithHead(backbone, task.head(backbone))
    generator = torch_stream(3, "trained")
    if method == "linear_probe":
        backbone.requires_grad_(False)
    added = LORA if method == "lora" else {}
    if method not in ("full", "linear_probe"):
        component = {"name": method, **added}
        METHODS.build(component, where="method").apply(model, generator=generator)
    initialise_head(model.head, generator=generator, std=0.2)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight += torch.randn(weight.shape, generator=generator) * 0.1
    keep(model, method, **added)
    return task, model.eval()


def trial_of(method: str) -> TrialKey:
    return TrialKey("run", 1, "task", method, "200", 1)


def keep(model: nn.Module, method: str, *, threshold: float = 0.0, **settings: Any) -> Path:
    """Stores a trial's weights as fine-tuning does; returns their file."""
    path = kept.path_of(trial_of(method))
    path.parent.mkdir(parents=True, exist_ok=True)
    records.write(path.parents[1] / "trials.csv", records.TrialRecord, [])
    trial = kept.KeptTrial(
        **trial_of(method)._asdict(),
        component={"name": method, **settings},
        task_settings={},
        initial_weights=None,
        text_to_text=False,
        max_tokens=64,
        precision="float32",
        lr=0.001,
        threshold=threshold,
        drawn_weights="",
        **kept.fingerprints(TrialSetup(CHECKPOINT, "task", max_tokens=64)),
    )
    kept.save(model, trial, path.parent)
    return path


def write_public(family: str) -> Any:
    """Writes data/pretrained/run of a public checkpoint as the run does; returns the model."""
    entry = {"name": "hub", "path": str(checkpoint(family))}
    entry["revision"] = revision_of(checkpoint(family))
    tokenizer = PublishedTokenizer(checkpoint(family))
    model = MODELS.build(entry, tokenizer.vocab_size, where="model")
    model.initialise(generator=torch.Generator())
    FOLDER.mkdir(parents=True)
    for file in tokenizer.files:
        (FOLDER / file.name).write_bytes(file.read_bytes())
    save_weights(model, FOLDER / WEIGHTS)
    settings = {"model": entry, "training": {"max_tokens": 64}, "parent": "none"}
    stored = entry | {"path": str(FOLDER)}
    about = {"architecture": model.architecture, "settings": settings, "fingerprint": "f"}
    about |= {"objective": "hub", "model": stored, "has_prefix": False}
    write_json(FOLDER / "run.json", about)
    return model


@pytest.mark.parametrize(("name", "reads", "method", "model_class"), FINETUNED)
def test_export_of_a_trial_gives_the_same_logits(
    name, reads, method, model_class, write_run
) -> None:
    """``reads`` is tagging, or how the states of a text are pooled for its classification."""
    is_public = name.startswith("public_")
    if is_public:
        backbone = write_public(name.removeprefix("public_"))
    else:
        backbone = write_run(*PRETRAINED[name][:2])
    pooling = {} if reads == "tagging" else {"pooling": reads}
    task_name = "classification" if pooling else "tagging"
    task, ours = finetuned(backbone, task_name, method=method, **pooling)
    message = export(CHECKPOINT, trial_of(method), Path("out"))
    theirs, tokenizer = load(), transformers.AutoTokenizer.from_pretrained("out")
    assert model_class in message and type(theirs).__name__ == model_class
    assert theirs.config.id2label == dict(enumerate(LABELS))
    of_texts = model_class.endswith("ForSequenceClassification")
    assert ("The logits of a text" in message) == bool(pooling and not of_texts)
    assert ("at the end of each text" in message) == (
        name == "public_gpt2"
    )  # its tokenizer adds no end-of-text

    rows = rows_of_texts() if pooling else rows_of_words()
    examples = task.encode(rows)
    batch = task.collate(examples, rngs=[])
    real = batch.document_ids != PADDING
    inputs: dict[str, Any] = {"input_ids": batch.input_ids, "attention_mask": real.long()}
    if batch.segment_ids is not None and "token_type_ids" in tokenizer.model_input_names:
        inputs["token_type_ids"] = batch.segment_ids
    encoded = []
    if name != "public_gpt2" and (pooling or not is_public):
        texts = [row["words"] if "words" in row else row["text"] for row in rows]
        pairs = [row.get("text_pair") for row in rows]
        encoded = [
            tokenizer(text, pair, is_split_into_words=not pooling)
            for text, pair in zip(texts, pairs, strict=True)
        ]
        encoded_ids = tokenizer.pad(encoded, return_tensors="pt")["input_ids"]
        assert torch.equal(encoded_ids, batch.input_ids)
    if is_public:
        assert tokenizer.model_max_length == 64
    with torch.no_grad():
        logits = theirs(**inputs).logits
        states = ours.backbone(batch)
        expected = ours.head(states, batch.document_ids) if pooling else ours.head(states)
    if not pooling:
        assert f"The label of a word is read at: {task.read_at}." in message
        got, expected = logits[real], expected[real]
    else:
        got = logits if of_texts else read_by(reads, logits, real.long()[..., None])
    assert expected.std() > 0.05
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)

    if not pooling and not is_public:  # the export labels words as the task does
        tags = [line.split() for line in task.predict(ours, batch, examples)]
        best = logits.argmax(dim=-1)
        for row, (encoding, expected_tags) in enumerate(zip(encoded, tags, strict=True)):
            of_words = encoding.word_ids()
            # The last subword of each word.
            places = {word: at for at, word in enumerate(of_words) if word is not None}
            if not ours.backbone.is_causal:
                places = {word: of_words.index(word) for word in places}
            labels = [theirs.config.id2label[int(best[row, at])] for at in places.values()]
            assert labels == expected_tags
        assert len({tag for line in tags for tag in line}) > 1
        place = "last" if ours.backbone.is_causal else "first"
        assert read_json(Path("out/export.json"))["read_at"] == f"{place} subword of a word"


def rows_of_texts() -> list[dict[str, Any]]:
    """Texts, and some pairs, of different lengths."""
    return [
        {"id": str(i), "text": d[0][:60], **({"text_pair": d[1][:40]} if i % 3 else {})}
        for i, d in enumerate(documents()[:8])
    ]


def rows_of_words() -> list[dict[str, Any]]:
    return [{"id": str(i), "words": d[0].split()[:12]} for i, d in enumerate(documents()[:8])]


def read_by(pooling: str, logits: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Returns the logits of texts, computed as the note of an export says."""
    if pooling == "mean":
        return (logits * mask).sum(1) / mask.sum(1)
    return logits[:, 0] if pooling == "first" else logits[range(len(mask)), mask.sum((1, 2)) - 1]


def test_export_of_a_trial_on_windows_says_how_the_logits_of_long_texts_are_made(write_run) -> None:
    backbone = write_run(*PRETRAINED["gpt2"][:2])
    task, ours = finetuned(backbone, "classification", pooling="last", long_texts="windows")
    message = export(CHECKPOINT, trial_of("full"), Path("out"))
    assert isinstance(task, Classification) and "texts of more than 64 tokens in windows" in message
    (example,) = task.encode([{"id": "1", "text": "a class of the class " * 30}])
    assert example.num_windows > 2
    with torch.no_grad():
        windows = [load()(torch.from_numpy(window.tokens)[None]) for window in example.windows]
        expected = task.logits(ours, task.collate([example], rngs=[]))
    mean = torch.cat([outputs.logits for outputs in windows]).mean(dim=0, keepdim=True)
    torch.testing.assert_close(mean, expected, atol=1e-4, rtol=1e-4)


def test_with_head_refuses_a_public_checkpoint_that_writes_text(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="writes text"):
        with_head(headless(write_public("gpt2")), [])


def test_without_head_bias_refuses_more_labels_than_dimensions() -> None:
    generator = torch.Generator().manual_seed(1)
    weight, bias = torch.randn(5, 3, generator=generator), torch.randn(5, generator=generator)
    weights = {"head.linear.weight": weight, "head.linear.bias": bias}
    with pytest.raises(ValueError, match="the classifier has a bias"):
        without_head_bias(weights | {"stack.norm.bias": torch.zeros(3)})


ODD = [
    "",
    "  two  blanks\tand\na line ",
    "Ωmega 漢字 e\u0301tude ﬁne ½ ～ ｶﾞ",
    "Việt Nam e\u0323\u0302, 한국어 \u1112\u1161\u11ab",
    "‘quotes’ — dash… \u00a0nbsp\u200bzero\ufeff",
    "🙂 👨\u200d👩\u200d👧 <0xE2> ▁blank",
    "1234567890 __init__(self, *args) -> None:",
]


def test_export_of_a_tokenizer_gives_the_same_ids(sentencepiece_model, write_run) -> None:
    write_run("encoder", {}, tokenizer=sentencepiece_model)
    path = FOLDER / TOKENIZER
    ours = Tokenizer(path)
    if ours.vocab_size != VOCAB_SIZE:  # the text sets the size of a character vocabulary
        fit_to(ours.vocab_size)
    export(CHECKPOINT, None, Path("out"))
    theirs = transformers.AutoTokenizer.from_pretrained("out")
    assert len(theirs) == ours.vocab_size
    assert theirs.mask_token_id == MASK_ID and theirs.pad_token_id == PAD_ID
    texts = [line for document in documents() for line in document][::3] + ODD
    texts += ["</s> is text", "<pad> <extra_id_0>"]
    for text, expected in zip(texts, ours.encode(texts), strict=True):
        begin, *got, end = theirs(text).input_ids
        assert (begin, end) == (BOS_ID, EOS_ID)
        if got != expected:  # a repeated character has several equally probable splits
            assert sorted(got) == sorted(expected) and re.search(r"(.)\1\1", text), text
        if UNK_ID not in expected:
            assert theirs.decode(expected) == ours.decode(expected)


def fit_to(vocab_size: int) -> None:
    """Replaces the run with a random run of this vocabulary size."""
    entry = {"name": "encoder", **DIMENSIONS}
    model = MODELS.build(entry, vocab_size, where="model")
    model.initialise(generator=torch_stream(1, "weights"))
    save_weights(model, FOLDER / WEIGHTS)


def test_exported_tokenizer_reads_masks_and_sentinels(write_run) -> None:
    ours = write_run("encoder_decoder", PRETRAINED["t5"][1])
    export(CHECKPOINT, None, Path("out"))
    tokenizer = transformers.AutoTokenizer.from_pretrained("out")
    first, last = tokenizer.convert_tokens_to_ids(["<extra_id_0>", "<extra_id_99>"])
    assert (first, last) == (ours.vocab_size - 1, ours.vocab_size - 100)
    ids = tokenizer("one <extra_id_0> three [MASK].").input_ids
    assert (ids[0], ids[-1]) == (BOS_ID, EOS_ID)
    assert ids.count(first) == ids.count(MASK_ID) == 1
    encode = Tokenizer(FOLDER / TOKENIZER).encode
    assert ids[1 : ids.index(first)] == encode(["one"])[0]
    assert ids[ids.index(first) + 1 : ids.index(MASK_ID)] == encode(["three"])[0]


def test_exported_tokenizer_of_a_decoder_adds_no_end(write_run) -> None:
    write_run("decoder", {})
    export(CHECKPOINT, None, Path("out"))
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
        ("encoder_decoder", {}, "positions: rotary; the nearest, T5, has"),
        ("encoder_decoder", BERT, "norm_position: post"),
        ("encoder_decoder", T5 | {"norm": "layernorm"}, "norm: layernorm; the nearest, T5, has"),
    ],
)
def test_export_refuses_options_of_no_family_by_name(
    architecture, options, message, write_run
) -> None:
    write_run(architecture, options)
    with pytest.raises(ValueError, match=message):
        export(CHECKPOINT, None, Path("out"))
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("bilstm", "bilstm models have no counterpart in transformers"),
        ("hub", r"pretrain\.runs\.run\.model: is a public checkpoint"),
    ],
)
def test_export_refuses_a_model_of_no_family(name, message, write_run) -> None:
    write_run("encoder", {})
    record = FOLDER / "run.json"
    settings = {"model": {"name": name}, "training": {"max_tokens": 64}}
    write_json(record, {"settings": settings, "fingerprint": "f", "has_prefix": False})
    with pytest.raises(ValueError, match=message):
        export(CHECKPOINT, None, Path("out"))
    assert not Path("out").exists()


def test_export_of_a_prefix_language_model_says_what_it_cannot_do(write_run) -> None:
    write_run("decoder", {})
    without = export(CHECKPOINT, None, Path("out"))
    record = FOLDER / "run.json"
    write_json(record, read_json(record) | {"has_prefix": True})
    message = export(CHECKPOINT, None, Path("prefix"))
    assert "causal" in message and "causal" not in without
    assert read_json(Path("prefix/export.json"))["note"] in message
    assert read_json(Path("out/export.json"))["note"] == ""


def test_export_refuses_methods_that_add_weights(write_run) -> None:
    finetuned(write_run("encoder", {}), "tagging")
    keep(nn.ParameterDict({"down": nn.Parameter(torch.zeros(2, 32))}), "lora")
    with pytest.raises(ValueError, match=r"methods\.lora: transformers has no counterpart"):
        export(CHECKPOINT, trial_of("lora"), Path("out"))
    assert not Path("out").exists()


def test_export_refuses_weights_of_another_checkpoint_or_task(write_run) -> None:
    """The error names the state that the weights belong to and the current one."""
    finetuned(write_run("encoder", BERT), "tagging")
    trial = trial_of("full")
    record = FOLDER / "run.json"
    about = read_json(record)
    write_json(record, about | {"fingerprint": "g"})
    with pytest.raises(
        ValueError, match=r"full-200-1-1.* belongs to .*run\.json as of f, .* g now"
    ):
        export(CHECKPOINT, trial, Path("out"))
    write_json(record, about)
    labels = {"labels": [*LABELS, "B-NEW"]}
    examples = Path("data/tasks/task/examples/task.json")
    write_json(examples, read_json(examples) | labels)
    with pytest.raises(ValueError, match=r"belongs to .*examples as of [0-9a-f]{12}, "):
        export(CHECKPOINT, trial, Path("out"))
    assert not Path("out").exists()


def test_export_has_a_card_with_the_scores_of_the_tables(write_run) -> None:
    finetuned(write_run("encoder", BERT), "tagging")
    export(CHECKPOINT, trial_of("full"), Path("unknown"))
    assert "no score is known" in Path("unknown/README.md").read_text()
    cell = {"run": "run", "task": "task", "method": "full", "label_budget": "200"}
    scores = {"metric": "entity_f1", "mean": 0.5, "low": 0.25, "high": 0.75}
    other = cell | scores | {"method": "lora", "mean": 0.125}
    records.write_table(paths.REPORTS / "scores.csv", [*cell, *scores], [other, cell | scores])
    export(CHECKPOINT, trial_of("full"), Path("out"))
    card: Any = ModelCard.load("out/README.md")
    assert card.data.pipeline_tag == "token-classification"
    (result,) = card.data.eval_results
    assert (result.dataset_type, result.metric_value) == ("task", 0.5)
    for part in ("| 50.0 | 25.0 to 75.0 |", "AutoModelForTokenClassification", "## Limits"):
        assert part in card.text
    assert "12.5" not in card.text and len(card.content.splitlines()) <= 60

    export(CHECKPOINT, None, Path("pretrained"))
    pretrained: Any = ModelCard.load("pretrained/README.md")
    assert pretrained.data.eval_results is None and "12.5" in pretrained.text


def command(monkeypatch, *arguments: str) -> int:
    """Runs the command; returns its exit status."""
    monkeypatch.setattr(sys, "argv", ["export", *arguments])
    try:
        main()
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def test_command_ends_mistakes_with_2_and_one_line(write_run, monkeypatch, capsys) -> None:
    finetuned(write_run("encoder", BERT), "tagging")
    Path("full").mkdir()
    Path("full/thesis.txt").write_text("mine")
    mistakes = {
        ("runn", "--out", "out"): "unknown 'runn'; did you mean 'run'",
        ("run", "--out", "full", "--force"): "holds something other than an export",
        ("run", "--out", "out", "--finetune-seed", "1"): "add --task",
        ("run", "--out", "out", "--task", "t"): "no such folder",
        (
            "run",
            "--out",
            "out",
            "--task",
            "task",
            "--finetune-seed",
            "2",
        ): "--method full --label-budget",
    }
    for arguments, message in mistakes.items():
        assert command(monkeypatch, *arguments) == 2
        error = capsys.readouterr().err
        assert error.startswith("error: ") and message in error and error.count("\n") == 1
    assert Path("full/thesis.txt").read_text() == "mine"


def test_command_says_how_to_load_and_replaces_only_when_told(
    write_run, monkeypatch, capsys
) -> None:
    finetuned(write_run("encoder", BERT), "tagging")
    assert command(monkeypatch, "run", "--out", "out", "--task", "task") == 0
    message = capsys.readouterr().out
    assert "AutoModelForTokenClassification.from_pretrained" in message
    assert read_json(Path("out/export.json"))["trial"]["method"] == "full"
    assert len({path.stat().st_mode for path in Path("out").iterdir()}) == 1  # the same readers
    line = next(line for line in message.splitlines() if "model =" in line)
    scope: dict[str, Any] = {"transformers": transformers}
    exec(line.strip(), scope)
    assert scope["model"].config.label2id == {label: i for i, label in enumerate(LABELS)}

    assert command(monkeypatch, "run", "--out", "out") == 2
    assert "--force replaces it" in capsys.readouterr().err
    assert command(monkeypatch, "run", "--out", "out", "--force") == 0
    assert read_json(Path("out/export.json"))["trial"] is None
