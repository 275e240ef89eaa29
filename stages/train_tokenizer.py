"""Train a tokenizer on the sentences of a corpus, or fetch that of a public checkpoint."""

import shutil
from collections.abc import Iterator
from pathlib import Path

from stages.core import paths
from stages.core.artifacts import read_jsonl, replacing
from stages.core.params import Params, PublishedTokenizer, Tokenizer, entry
from stages.core.process import run_stage
from stages.core.seeding import stream
from stages.text import tokenizer

SEED = 0  # of the sample of sentences; a corpus no longer than max_sentences is used whole
THREADS = 2  # fixed, since sentencepiece's pieces may depend on their number


def main(params: Params, key: str) -> None:
    settings = entry(params.tokenizers, key, where="tokenizers")
    if isinstance(settings, PublishedTokenizer):
        _fetch(settings, key)
    else:
        _train(settings, key)


def _fetch(settings: PublishedTokenizer, key: str) -> None:
    from stages.text import published  # which takes seconds

    try:
        origin = published.folder_of(settings.path, settings.revision, published.VOCABULARY)
        if origin == Path(settings.path):
            published.refuse_other_content(origin, settings.revision)
        files = published.PublishedTokenizer(origin).files
    except ValueError as error:
        raise ValueError(f"tokenizers.{key}.{error}") from None
    with replacing(paths.TOKENIZERS / key) as folder:
        folder.mkdir()
        for file in files:
            shutil.copyfile(file, folder / file.name)


def _train(settings: Tokenizer, key: str) -> None:
    sentences = list(_sentences(paths.CORPORA / settings.corpus / "train.jsonl"))
    order = stream(SEED, "tokenizer").permutation(len(sentences))[: settings.max_sentences]
    with replacing(paths.TOKENIZERS / key) as folder:
        folder.mkdir()
        try:
            tokenizer.train(
                (sentences[i] for i in order),
                folder / tokenizer.FILE,
                algorithm=settings.algorithm,
                vocab_size=settings.vocab_size,
                threads=THREADS,
            )
        except ValueError as error:
            raise ValueError(f"tokenizers.{key}: {error}") from None


def _sentences(path: Path) -> Iterator[str]:
    for document in read_jsonl(path):
        yield from document["sentences"]


if __name__ == "__main__":
    run_stage(main, "tokenizer", repeats=lambda raw, key: [raw["tokenizers"][key]])
