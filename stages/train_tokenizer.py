"""Train a tokenizer on the sentences of a corpus, or fetch the tokenizer of a public checkpoint."""

import shutil
from itertools import chain
from pathlib import Path

from stages.core import paths
from stages.core.artifacts import replacing
from stages.core.params import PublishedTokenizer
from stages.core.params import Tokenizer as TrainedTokenizer
from stages.core.plans import TokenizerPlan
from stages.core.process import run_stage
from stages.core.seeding import stream
from stages.text.checkpoints import CONFIG, VOCABULARY, folder_of, refuse_other_content
from stages.text.corpus import StoredDocuments
from stages.text.tokenizer import Tokenizer, train

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
    try:
        origin = folder_of(settings.path, settings.revision, VOCABULARY)
        if origin == Path(settings.path):
            refuse_other_content(origin, settings.revision)
        tokenizer = Tokenizer(origin)
    except ValueError as error:
        raise ValueError(f"tokenizers.{key}.{error}") from None
    with replacing(paths.TOKENIZERS / key) as folder:
        folder.mkdir()
        tokenizer.save_to(folder)
        shutil.copyfile(origin / CONFIG, folder / CONFIG)  # says how a decoder begins


def _train(settings: TrainedTokenizer, key: str) -> int:
    """Trains a tokenizer and returns the number of sentences that it learnt from."""
    documents = StoredDocuments(paths.CORPORA / settings.corpus / "train.jsonl")
    sentences = sample(documents, settings.max_sentences)
    with replacing(paths.TOKENIZERS / key) as folder:
        try:
            train(
                sentences,
                folder,
                algorithm=settings.algorithm,
                vocab_size=settings.vocab_size,
                threads=THREADS,
            )
        except ValueError as error:
            raise ValueError(f"tokenizers.{key}: {error}") from None
    return len(sentences)


def sample(documents: StoredDocuments, max_sentences: int) -> list[str]:
    """Returns up to ``max_sentences`` sentences in a random order. The corpus is read twice, and
    only the sample is held in memory.

    sentencepiece's own sampling (``input_sentence_size``) is not used: its generator cannot be
    seeded separately from the training.
    """
    numbers = range(len(documents))
    total = sum(map(len, documents.sentences(numbers)))
    chosen = stream(SEED, "tokenizer").permutation(total)[:max_sentences].tolist()
    places = {number: place for place, number in enumerate(chosen)}
    sampled = [""] * len(chosen)
    for number, sentence in enumerate(chain.from_iterable(documents.sentences(numbers))):
        if number in places:
            sampled[places[number]] = sentence
    return sampled


if __name__ == "__main__":
    run_stage(main, TokenizerPlan, "tokenizer")
