"""Small real test objects: English text that comes with Python, its tokenizer, and models."""

import inspect
import tempfile
import unicodedata
from functools import cache
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import torch
from torch import nn

from stages.core.params import HUB, Params, Training
from stages.core.seeding import torch_stream
from stages.models._backbone import MODELS, Backbone
from stages.models._heads import ModelWithHead, initialise_head
from stages.tasks._task import Task
from stages.text import tokenizer
from stages.text.corpus import EncodedCorpus, encode
from stages.text.tokenizer import Tokenizer

VOCAB_SIZE = 600
DIMENSIONS = {"d_model": 32, "num_layers": 2, "num_heads": 2, "d_ff": 64}  # of transformers
D_CELL = 48
FAMILIES = tuple(name for name in MODELS.names() if name != HUB)
# One family of each architecture, for tests in which the family makes no difference.
FAMILY = {
    "encoder": "modernbert",
    "decoder": "phi",
    "encoder_decoder": "t5",
    "bilstm": "bilstm",
}
ARCHITECTURES = tuple(FAMILY)


_FOLDERS = tempfile.TemporaryDirectory()  # removed when Python ends


def new_folder() -> Path:
    """Returns an empty folder that lasts until Python ends."""
    return Path(tempfile.mkdtemp(dir=_FOLDERS.name))


@cache
def documents() -> list[list[str]]:
    """Topics of the language reference, as lists of their non-empty lines.

    The text is in NFKC, like text that a tokenizer decodes.
    """
    texts = [unicodedata.normalize("NFKC", text) for text in topics.values()]
    lines_of_texts = [[" ".join(line.split()) for line in text.splitlines()] for text in texts]
    return [[line for line in lines if line] for lines in lines_of_texts][:40]


@cache
def small_tokenizer() -> Tokenizer:
    folder = new_folder()
    lines = (line for document in documents() for line in document)
    tokenizer.train(lines, folder, algorithm="unigram", vocab_size=VOCAB_SIZE, threads=1)
    return Tokenizer(folder)


@cache
def small_corpus() -> EncodedCorpus:
    return encode(documents(), small_tokenizer())


def saved(corpus: EncodedCorpus, folder: Path, max_tokens: int | None = None) -> EncodedCorpus:
    """Writes the first tokens of a corpus, in the files that ``EncodedCorpus.load`` opens."""
    tokens = corpus.tokens[:max_tokens]
    starts = [s[s < len(tokens)] for s in (corpus.document_starts, corpus.sentence_starts)]
    cut = EncodedCorpus(tokens, *starts)
    cut.save(folder)
    return cut


def with_encoder_decoder(smoke: Params) -> Params:
    """Returns the smoke study with a run of an encoder-decoder, which it leaves out."""
    decoder = smoke.models["decoder_causal"]
    sizes = {k: v for k, v in decoder.architecture.items() if k != "start"}
    settings = {"architecture": sizes | {"name": "t5"}}
    run = decoder.model_copy(update=settings | {"objective": {"name": "span_corruption"}})
    runs = smoke.models | {"encoder_decoder_span": run}
    return smoke.model_copy(update={"models": runs})


def without_output_layers(backbone: Any) -> Any:
    """Returns the model as tasks with heads of their own train it."""
    backbone.drop_output_layers()
    return backbone


def headless(backbone: Backbone) -> ModelWithHead:
    """Returns the backbone as objectives without heads of their own train it."""
    return ModelWithHead(backbone, nn.Identity())


def with_head(task: Task, backbone: Any) -> ModelWithHead:
    """The backbone with the head of a task, whose weights are drawn from one seed."""
    head = task.head(without_output_layers(backbone))
    initialise_head(head, generator=torch.Generator().manual_seed(1))
    return ModelWithHead(backbone, head).eval()


def with_stub(backbone: Any, head: nn.Module) -> ModelWithHead:
    """Returns a model whose backbone is a stub of a test instead of a Backbone."""
    model = ModelWithHead(small_model("encoder"), head)
    model.backbone = backbone
    return model


def small_entry(architecture: str, **settings: Any) -> dict[str, Any]:
    """Returns an entry ``architecture:`` with small sizes, of a family or of the family that stands
    for an architecture."""
    name = FAMILY.get(architecture, architecture)
    names = inspect.signature(MODELS.find(name, where="").__init__).parameters
    sizes = {k: v for k, v in (DIMENSIONS | {"d_cell": D_CELL}).items() if k in names}
    return {"name": name, **sizes, **settings}


def small_model(architecture: str, *, seed: int = 1, **settings: Any) -> Any:
    entry = small_entry(architecture, **settings)
    model: Backbone = MODELS.build(entry, VOCAB_SIZE, where="architecture")
    model.initialise(generator=torch_stream(seed, "weights"))
    return model


def small_schedule(
    *, rows: int, max_tokens: int, num_steps: int, lr: float, **changes: Any
) -> Training:
    """Returns the settings of a pretraining in batches of ``rows`` rows."""
    settings: dict[str, Any] = {"batch_rows": rows, "num_validations": 1}
    return Training(max_tokens=max_tokens, num_steps=num_steps, lr=lr, **(settings | changes))
