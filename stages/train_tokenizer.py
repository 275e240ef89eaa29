"""Train a tokenizer on the sentences of a corpus, or fetch the tokenizer of a public checkpoint."""

import shutil
from itertools import chain
from pathlib import Path

from stages.core import paths
from stages.core.artifacts import replacing
from stages.core.components import below
from stages.core.params import PublishedTokenizer
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
    with below(f"tokenizers.{key}"), replacing(paths.TOKENIZERS / key) as folder:
        if isinstance(settings, PublishedTokenizer):
            origin = folder_of(settings.path, settings.revision, VOCABULARY)
            if origin == Path(settings.path):
                refuse_other_content(origin, settings.revision)
            tokenizer = Tokenizer(origin)
            folder.mkdir()
            tokenizer.save_to(folder)
            shutil.copyfile(origin / CONFIG, folder / CONFIG)  # says how a decoder begins
            return f"the tokenizer of {settings.path}"
        documents = StoredDocuments(paths.CORPORA / settings.corpus / "train.jsonl")
        sentences = sample(documents, settings.max_sentences)
        train(
            sentences,
            folder,
            algorithm=settings.algorithm,
            vocab_size=settings.vocab_size,
            threads=THREADS,
        )
    return f"{settings.vocab_size:,} tokens, learnt from {len(sentences):,} sentences"


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
