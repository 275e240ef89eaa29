"""The study proposed for files of every format has no fault."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from stages.checking.faults import find_faults
from stages.core import paths
from stages.core.artifacts import Json, read_json, read_jsonl
from stages.core.params import Params, TaskEntry
from stages.proposal.corpus import vocabulary_of
from stages.sources._source import SOURCES
from stages.text import tokenizer
from tests.labelled_files import (
    NUM,
    classified,
    conllu,
    objects,
    prepare,
    proposed,
    squad,
    study_of,
    table,
    tagged,
    texts,
    write_parquet,
)


def put(name: str, content: str) -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(content)


def pairs(num: int = NUM) -> list[Json]:
    return [
        {"id": i, "sentence_A": text, "sentence_B": f"it was {text}"}
        | {"score": i / 10, "gold": label}
        for i, (text, label) in enumerate(texts(num))
    ]


def test_propose_draws_splits_by_a_group() -> None:
    rows = [(text, label, f"user{i % 30}") for i, (text, label) in enumerate(texts())]
    put("reviews.csv", table([("review", "stars", "user"), *rows]))
    proposal = proposed("reviews.csv", group="user")
    params = study_of(proposal)
    assert params.tasks["reviews"].source["group"] == "user"
    prepare(params, "reviews")
    assert not list(find_faults(params))
    with pytest.raises(ValueError, match="no column 'author'"):
        proposed("reviews.csv", group="author")


def test_propose_draws_splits_by_time() -> None:
    days = [f"{i % 28 + 1:02}/03/20{i // 2 % 20 + 1:02}" for i in range(NUM)]
    rows = [(*row, day) for row, day in zip(texts(), days, strict=True)]
    put("reviews.csv", table([("review", "stars", "day"), *rows]))
    with pytest.raises(ValueError, match=r"^reviews.csv line 2: day is '01/03/2001'.*time_format"):
        proposed("reviews.csv", time="day")
    proposal = proposed("reviews.csv", time="day", time_format="%d/%m/%Y")
    params = study_of(proposal)
    assert params.tasks["reviews"].source["time_format"] == "%d/%m/%Y"
    prepare(params, "reviews")
    last = read_json(paths.examples("reviews") / "task.json")["times"]["test"][1]
    assert last.endswith("/2020")
    assert not list(find_faults(params))


def split_files() -> None:
    rows = texts(90)
    for name, part in (("train", rows[:60]), ("dev", rows[60:75]), ("test_gold", rows[75:])):
        put(f"data/{name}.txt", table(part, "\t"))
    put("data/README.md", "What this is.")


def choices() -> str:
    rows = [
        {"premise": text, "choice1": "it is liked", "choice2": "it is not", "label": i % 2}
        for i, (text, _) in enumerate(texts())
    ]
    return objects(rows)


def translations(num: int = 60) -> None:
    for split, number in (("train", num), ("val", 12), ("test", 12)):
        rows = [f"{text} {split}" for text, _ in texts(number)]
        put(f"data/{split}.en", "\n".join(rows) + "\n")
        put(f"data/{split}.de", "\n".join(row.upper() for row in rows) + "\n")


# (path, content or a function that writes it, kind, settings of the source, necessary flags)
FILES: dict[str, tuple] = {
    "pairs": (
        "a.jsonl",
        objects(pairs()),
        "classification",
        {"text": "sentence_A", "text_pair": "sentence_B", "label": "gold"},
    ),
    "parquet": ("a.parquet", lambda: write_parquet(Path("a.parquet")), "classification", {}),
    "splits": (
        "data",
        split_files,
        "classification",
        {"train": "train.txt", "validation": "dev.txt", "test": "test_gold.txt"}
        | {"format": "tsv", "columns": ["text", "label"]},
        {"format": "tsv", "names": ["text", "label"]},
    ),
    "squad": ("a.json", squad(), "span_qa", {}),
    "bio": ("a.conll", tagged(), "tagging", {"columns": ["words", "tags"]}),
    "conllu": ("a.conllu", conllu(), "tagging", {}),
    "choices": (
        "a.jsonl",
        choices(),
        "multiple_choice",
        {"text": "premise", "choices": ["choice1", "choice2"]},
    ),
    "parallel": (
        "data",
        translations,
        "seq2seq",
        {"train": "train", "validation": "val", "test": "test", "format": "parallel"}
        | {"text": "en", "target": "de"},
        {"columns": {"text": "en", "target": "de"}},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_propose_writes_a_study_of_each_format_without_a_fault(name: str) -> None:
    path, content, kind, columns, *flags = FILES[name]
    put(path, content) if isinstance(content, str) else content()
    proposal = proposed(path, **(flags[0] if flags else {}))
    params = study_of(proposal)
    assert list(find_faults(params)) == []
    ((key, task),) = params.tasks.items()
    prepare(params, key)
    assert task.task["name"] == kind
    source = {k: v for k, v in task.source.items() if k not in ("name", "path")}
    assert source == columns


@pytest.mark.parametrize(("num_tags", "has_probe"), [(2, True), (5, True), (6, False)])
def test_propose_adds_no_probe_for_words_with_many_tags(num_tags: int, has_probe: bool) -> None:
    """A probe is solved for each word and tag."""
    sentence = [f"word{i}\tTAG{i % num_tags}" for i in range(8)]
    put("a.conll", "".join("\n".join([*sentence, f"He{i}\tTAG0"]) + "\n\n" for i in range(60)))
    proposal = proposed("a.conll", minutes=60)
    assert proposal.num_tags == num_tags
    assert ("linear_probe" in study_of(proposal).finetune.methods) == has_probe


@pytest.mark.slow
def test_propose_pretrains_on_own_text() -> None:
    put("a.csv", classified())
    put("mytext/a.txt", "\n\n".join(f"A text of the year {i}." for i in range(300)))
    params = study_of(proposed("a.csv", corpus=Path("mytext")))
    assert list(find_faults(params)) == []
    assert params.corpora["my_text"].source["path"] == "mytext"
    assert params.corpora["my_text"].decontaminate_against == "tasks"
    runs = [(run.architecture["name"], run.corpus) for run in params.models.values()]
    assert {*runs} == {(m, c) for m in ("modernbert", "phi") for c in ("my_text", "none")}


@pytest.mark.parametrize(("num_rare", "is_weighted"), [(12, True), (60, False)])
def test_propose_weights_classes_of_which_one_is_rare(num_rare: int, is_weighted: bool) -> None:
    """The rare class has 4 % or 20 % of 300 rows."""
    rows = [(text, "rare" if i < num_rare else "usual") for i, (text, _) in enumerate(texts(300))]
    put("mails.csv", table([("mail", "folder"), *rows]))
    proposal = proposed(Path("mails.csv"))
    task = study_of(proposal).tasks["mails"].task
    assert task.get("class_weights") == ("balanced" if is_weighted else None)


@pytest.mark.parametrize(("num_long", "reads_ends"), [(9, False), (40, True)])
def test_propose_reads_the_end_of_texts_where_many_are_cut(num_long: int, reads_ends: bool) -> None:
    rows = [
        (f"{text} {'and so on ' * 100}" if i < num_long else text, label)
        for i, (text, label) in enumerate(texts(200))
    ]
    put("mails.csv", table([("mail", "folder"), *rows]))
    proposal = proposed(Path("mails.csv"))
    params = study_of(proposal)
    assert params.finetune.max_tokens == (256 if reads_ends else 32)
    ends = params.tasks["mails"].task.get("long_texts")
    assert ends == ("head_tail" if reads_ends else None)


def test_propose_counts_as_prepare_task_does() -> None:
    """Notes count rows, labels and duplicates as ``prepare_task`` does."""
    rows = texts(90)
    put("data/train.csv", table([("text", "label"), *rows[:60], rows[0], rows[70], rows[80]]))
    put("data/dev.csv", table([("text", "label"), *rows[60:75]]))
    put("data/test.csv", table([("text", "label"), *rows[75:]]))
    proposal = proposed("data")
    prepare(study_of(proposal), "data")
    record = json.loads((paths.examples("data") / "task.json").read_text())
    counted = record["num_examples"]
    notes = " ".join(proposal.notes)
    assert f"{counted['train']} train, {counted['validation']} validation" in notes
    assert counted["train"] == 61 and record["duplicates_removed"]["train"] == 2
    for label, number in record["num_labels"]["train"].items():
        assert f"{label}: {number}" in notes


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        (lambda i: f"it was bought in {i} and paid", ("char", 4096)),  # of few words
        (lambda i: f"это слово{i} и другое{i}", ("char", 4096)),  # hardly a word recurs
        (lambda i: "".join(chr(0x4E00 + (7 * i + j) % 900) for j in range(12)), ("char", 4096)),
        (lambda i: " ".join(f"w{i % 200}{sign}" for sign in "abcde"), ("unigram", 512)),
    ],
)
def test_vocabulary_of_can_be_trained(sentence, expected: tuple, tmp_path: Path) -> None:
    sentences = [sentence(i) for i in range(800)]
    algorithm, size = vocabulary_of(sentences, has_blanks=" " in sentences[0])
    assert (algorithm, size) == expected
    fewer = sentences[:784]  # sentences of test rows are removed
    tokenizer.train(fewer, tmp_path, algorithm=algorithm, vocab_size=size, threads=1)


def test_propose_holds_out_the_test_rows_of_labelled_texts_as_a_corpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("stages.proposal.corpus.ENOUGH_WORDS", 100)
    put("a.csv", table([("review", "stars"), *texts(1_000)], ";"))
    params = study_of(proposed("a.csv"))
    assert params.tasks["a"].source["delimiter"] == "semicolon"
    (corpus,) = params.corpora.values()
    ((key, _),) = params.tasks.items()
    assert {run.corpus for run in params.models.values()} == {"labelled_texts", "none"}
    prepare(params, key)
    test = {row["text"] for row in read_jsonl(paths.examples(key) / "test.jsonl")}
    documents = [*SOURCES.build(corpus.source, where="corpora.labelled_texts").documents()]
    held_out = {" ".join(d.sentences) for d in documents if d.split == "test"}
    assert len(documents) == 1_000 and test and held_out == test


def test_propose_draws_the_splits_of_few_rows_with_each_seed() -> None:
    """Splits stay fixed for 1,000 rows, with a group or a time, and where a seed leaves train
    without a label."""

    def drawn(
        rows: Sequence[Sequence[object]], group: str | None = None, time: str | None = None
    ) -> tuple[TaskEntry, list[int], str]:
        put("a.csv", table([("review", "stars", "author", "day"), *rows]))
        columns = {"text": "review", "label": "stars"}
        proposal = proposed(
            "a.csv",
            task="classification",
            columns=columns,
            group=group,
            time=time,
            min_rows_per_class=1,
        )
        params = study_of(proposal)
        return params.tasks["a"], params.finetune.seeds, " ".join(proposal.notes)

    def rows(num: int) -> list[tuple[str, ...]]:
        numbered = enumerate(texts(num))
        return [(*row, f"author {i % 40}", f"2020-01-{1 + i % 28:02}") for i, row in numbered]

    task, seeds, notes = drawn(rows(NUM))
    assert task.split_seeds == seeds == [1, 2, 3, 4, 5]
    for num, group, time in ((1_000, None, None), (NUM, "author", None), (NUM, None, "day")):
        task, _, notes = drawn(rows(num), group, time)
        assert task.split_seeds is None
    task, _, notes = drawn([*rows(NUM), ("an odd opera 1", "odd", "author 1", "2020-02-01")])
    assert task.split_seeds is None and "no example of train has the label 'odd'" in notes


TRANSLATED = {"columns": {"text": "en", "target": "de"}}


def sentences_of(params: Params) -> dict[str, set[str]]:
    """Returns the sentences of the only corpus, by split."""
    prepare(params, "data")
    (corpus,) = params.corpora.values()
    sentences: dict[str, set[str]] = {"train": set(), "validation": set(), "test": set()}
    for document in SOURCES.build(corpus.source, where="corpus").documents():
        sentences[document.split] |= {*document.sentences}
    return sentences


def test_few_translations_are_read_in_pairs_by_the_tokenizer_alone() -> None:
    translations()
    proposal = proposed("data", **TRANSLATED)
    params = study_of(proposal)
    assert {run.objective["name"] for run in params.models.values()} == {"none"}
    sentences = sentences_of(params)
    assert len([s for s in sentences["train"] if s.isupper()]) == 60
    assert not sentences["test"] and not any("test" in s.lower() for s in sentences["train"])
    assert not list(find_faults(params))


def test_models_are_pretrained_on_many_translations_but_on_no_pair(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("stages.proposal.corpus.ENOUGH_WORDS", 1_500)  # of both sides together
    translations(120)
    proposal = proposed("data", **TRANSLATED)
    params = study_of(proposal)
    assert {run.corpus for run in params.models.values()} == {"labelled_texts", "none"}
    (corpus,) = params.corpora.values()
    for document in SOURCES.build(corpus.source, where="corpus").documents():
        assert len(document.sentences) == 1
    sentences = sentences_of(params)
    assert len(sentences["train"]) == 240 and len(sentences["test"]) == 24
    assert not list(find_faults(params))


def test_lengths_of_inputs_and_targets_are_those_of_their_tokens(tmp_path: Path) -> None:
    """The words of the targets are long and hardly recur, so that each has many tokens."""
    rows = [text for text, _ in texts(300)]
    numbers = [" ".join(str((i + 7) ** (word + 3)) for word in range(6)) for i in range(300)]
    put("data.csv", table([("text", "summary"), *zip(rows, numbers, strict=True)]))
    proposal = proposed("data.csv")
    params, corpus = study_of(proposal), proposal.corpus
    sentences = sorted(sentences_of(params)["train"])
    size = corpus.vocab_size
    tokenizer.train(sentences, tmp_path, algorithm=corpus.algorithm, vocab_size=size, threads=1)
    learnt = tokenizer.Tokenizer(tmp_path)
    train = read_jsonl(paths.examples("data") / "train.jsonl")
    written = params.tasks["data"].task["max_target_tokens"]
    for column, most in (("text", params.finetune.max_tokens), ("target", written)):
        lengths = [len(ids) for ids in learnt.encode([row[column] for row in train])]
        assert sum(length + 2 > most for length in lengths) <= 0.05 * len(lengths)
