"""Train a tokenizer on the sentences of a corpus, or fetch the tokenizer of a public checkpoint."""

import shutil
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np

from stages.core import paths
from stages.core.artifacts import replacing
from stages.core.parallel import in_order
from stages.core.params import PublishedTokenizer, Tokenizer
from stages.core.plans import TokenizerPlan
from stages.core.process import run_stage
from stages.core.seeding import stream
from stages.text import tokenizer
from stages.text.stored import StoredDocuments

SEED = 0  # of the sample of sentences; a corpus of at most max_sentences is used whole
THREADS = 2  # fixed, since sentencepiece's pieces may depend on the number of threads


def main(plan: TokenizerPlan, key: str) -> str:
    settings = plan.tokenizer
    if isinstance(settings, PublishedTokenizer):
        _fetch(settings, key)
        return f"the tokenizer of {settings.path}"
    num_sentences = _train(settings, key)
    return f"{settings.vocab_size:,} tokens, learnt from {num_sentences:,} sentences"


def _fetch(settings: PublishedTokenizer, key: str) -> None:
    from stages.text import published, published_files, untrusted  # the import takes seconds

    vocabulary = published_files.VOCABULARY
    try:
        origin = published_files.folder_of(settings.path, settings.revision, vocabulary)
        if origin == Path(settings.path):
            published_files.refuse_other_content(origin, settings.revision)
        files = published_files.read_files(origin, vocabulary)
        untrusted.examined(
            lambda: untrusted.refuse_growth(published.PublishedTokenizer(origin), origin),
            origin,
            files,
        )
    except ValueError as error:
        raise ValueError(f"tokenizers.{key}.{error}") from None
    with replacing(paths.TOKENIZERS / key) as folder:
        folder.mkdir()
        for file in files:
            shutil.copyfile(file, folder / file.name)


def _train(settings: Tokenizer, key: str) -> int:
    """Trains a tokenizer and returns the number of sentences that it learnt from."""
    documents = StoredDocuments(paths.CORPORA / settings.corpus / "train.jsonl")
    sentences = sample(documents, settings.max_sentences)
    with replacing(paths.TOKENIZERS / key) as folder:
        folder.mkdir()
        try:
            tokenizer.train(
                sentences,
                folder / tokenizer.FILE,
                algorithm=settings.algorithm,
                vocab_size=settings.vocab_size,
                threads=THREADS,
            )
        except ValueError as error:
            raise ValueError(f"tokenizers.{key}: {error}") from None
    return len(sentences)


def sample(
    documents: StoredDocuments, max_sentences: int, *, processes: int | None = None
) -> list[str]:
    """Returns up to ``max_sentences`` sentences in a random order. The corpus is read twice, and
    only the sample is held in memory.

    sentencepiece's own sampling (``input_sentence_size``) is not used: its generator cannot be
    seeded separately from the training.
    """
    parts = list(documents.parts(np.arange(len(documents))))
    work = partial(_num_sentences, documents)
    numbers = list(in_order(work, parts, documents.size, processes=processes))
    chosen = order(sum(numbers))[:max_sentences]
    places = np.argsort(chosen)
    chosen = chosen[places]
    ends = np.cumsum(numbers)
    bounds = np.searchsorted(chosen, [0, *ends]).tolist()
    requests = [
        (part, chosen[begin:end].astype(np.int64) - (after - number))
        for part, begin, end, after, number in zip(
            parts, bounds, bounds[1:], ends, numbers, strict=False
        )
    ]
    sentences = in_order(
        partial(_sentences, documents),
        requests,
        lambda request: documents.size(request[0]),
        processes=processes,
    )
    sampled = [""] * len(places)
    for place, sentence in zip(places, chain.from_iterable(sentences), strict=True):
        sampled[place] = sentence
    return sampled


def order(number: int) -> np.ndarray:
    """Returns the random order of ``number`` sentences that numpy's ``permutation`` would give, in
    half its memory."""
    numbers = np.arange(number, dtype=np.uint32 if number < 2**32 else np.int64)
    stream(SEED, "tokenizer").shuffle(numbers)
    return numbers


def _num_sentences(documents: StoredDocuments, numbers: np.ndarray) -> int:
    return sum(map(len, documents.sentences(numbers)))


def _sentences(documents: StoredDocuments, request: tuple[np.ndarray, np.ndarray]) -> list[str]:
    """Returns the requested sentences. A request has the numbers of documents, and the places of
    the sentences among all sentences of these documents."""
    numbers, places = request
    sentences = list(chain.from_iterable(documents.sentences(numbers)))
    return [sentences[place] for place in places]


if __name__ == "__main__":
    run_stage(main, TokenizerPlan, "tokenizer")
