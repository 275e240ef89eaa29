"""Reads the labelled rows as the pipeline will read them, asks what they do not show, and says what
in them would lead to a wrong study."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np
import pandas
from jaxtyping import Int

from stages.core.artifacts import Json
from stages.core.components import below
from stages.prepare_task import (
    check_groups,
    check_kind,
    count_labels,
    times_of,
    with_enough_rows,
    without_duplicates,
)
from stages.proposal.columns import SHAPES, Column, columns_of
from stages.proposal.files import files_of, names_of_numbers, odd_texts
from stages.proposal.flags import WORDS, Flags, roles_of
from stages.proposal.questions import LANGUAGES, Note, Unclear
from stages.proposal.roles import MOST_ROWS, Guess, guess, notes_on_columns
from stages.sources._columns import EMPTY_CELLS, EMPTY_SIGNS, GROUP, NONE, TIME
from stages.sources._source import SOURCES, Labelled
from stages.sources.files import PARALLEL
from stages.tasks._cells import EmptyCellError, is_missing, short, structured
from stages.tasks._labels import LABEL_CASE, NO_LABEL_SIGNS, signs_of_none
from stages.tasks._tags import OUTSIDE, written_as
from stages.tasks._task import SPLITS, TASKS, Split, Task
from stages.tasks.tagging import listed as listed_tags

LETTERS = 20_000  # number of letters of the texts that are read to find the script
NOT_LATIN = r"[^A-Za-z\xaa-\u024f\u1e00-\u1eff]"
# Letters of scripts without blanks between words: Thai, Lao, Burmese, Khmer, Japanese, Chinese.
SPACELESS = r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]"
LEAST_LETTERS, LEAST_TEXTS, MAX_TEXTS = 30, 10, 300  # of texts that show the language
LEAST_SHARE = 0.05  # of texts in a language
OUTSIDES = (OUTSIDE, "o", "0", "_", "-", "*")
MANY_OUTSIDE = 1 / 3  # share of words outside of spans, if there are spans
LEAST_VALUES = 10  # different targets, among which one may be far from all others
LEAST_OF_CLASS = 10  # rows, of which one or two are few
SHOWN_LABELS, LETTERS_SHOWN = 8, 40
FEW_TEST_ROWS = 400
ODD_LINES = 50  # fewest lines of a text in a table that is suspicious


@dataclass(frozen=True)
class Examples:
    """The rows of each split, without those whose input is also in a later split."""

    kind: Task
    source: Json  # settings of the source
    by_split: dict[Split, list[Labelled]]
    removed: dict[str, int]  # rows of a split whose input a later split has
    labelled: list[Labelled]  # all rows

    @property
    def num(self) -> dict[Split, int]:
        return {split: len(self.by_split[split]) for split in SPLITS}

    @property
    def labels(self) -> dict[str, int]:
        return count_labels(self.by_split["train"], self.kind)

    @cached_property
    def inputs(self) -> list[str]:
        """The texts of train."""
        return [" ".join(self.kind.texts(example.row)) for example in self.by_split["train"]]

    @property
    def targets(self) -> list[str]:
        """The texts of train that are to be written, if the task is to write a text."""
        rows = [example.row for example in self.by_split["train"]]
        return [row["target"] for row in rows] if self.kind.name == "seq2seq" else []

    @cached_property
    def letters(self) -> str:
        return "".join(islice((c for text in self.inputs for c in text if c.isalpha()), LETTERS))

    @property
    def is_spaceless(self) -> bool:
        """Whether most letters are of a script without blanks between words."""
        return len(re.findall(SPACELESS, self.letters)) > len(self.letters) / 2

    @property
    def latin(self) -> float:
        """The share of Latin letters."""
        return 1 - len(re.findall(NOT_LATIN, self.letters)) / max(len(self.letters), 1)

    def count_words(self, texts: Sequence[str]) -> Int[np.ndarray, " N"]:
        """Returns the number of words of each text, or of its letters if the script has no blanks
        between words."""
        spaceless = self.is_spaceless
        counts = [len(t.replace(" ", "")) if spaceless else len(t.split()) for t in texts]
        return np.array(counts, dtype=np.int64)

    @cached_property
    def languages(self) -> dict[str, float]:
        """The share of each language among the texts of train, by its code in ISO 639, the most
        frequent first; empty for few or short texts."""
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        long = [text for text in self.inputs[:MAX_TEXTS] if len(text) >= LEAST_LETTERS]
        if len(long) < LEAST_TEXTS:
            return {}
        identifier = LanguageIdentifier.from_model_file(MODEL_FILE)
        # Nigerian Pidgin is seen in short English sentences of names.
        identifier.set_languages([code for code in identifier.nb_classes if code != "pcm"])
        counts = Counter(identifier.classify(text)[0] for text in long)
        if len(counts) > 1:  # short texts seem to be in any language
            often = [code for code, number in counts.items() if number >= LEAST_SHARE * len(long)]
            identifier.set_languages(often)
            counts = Counter(identifier.classify(text)[0] for text in long)
        return {code: number / len(long) for code, number in counts.most_common()}


def read_examples(source: Json, flags: Flags, notes: list[Note]) -> tuple[Examples, Json]:
    """Returns the rows of the source, with settings of their task. Rows with an empty cell, and
    rows whose label is certainly a sign for no label, are left out, and their number is added to
    ``notes``.

    Raises ValueError for rows that the pipeline would refuse, with their file and line, and if it
    is not clear what the files hold.
    """
    guessed = _guess(source, flags, notes)
    kind, files = TASKS[guessed.kind], files_of(source)
    conllu = {"words": "FORM", "tags": "UPOS"} if files[0].format == "conllu" else {}
    usual = {role: role for role in (*kind.inputs, kind.target)} | conllu
    usual |= {key: parameter.default for key, parameter in kind.cell_settings.items()}
    chosen = {**guessed.columns, **guessed.settings}
    source = source | {key: value for key, value in chosen.items() if value != usual.get(key)}
    signs = NONE if flags.no_label == [] else flags.no_label
    said = {NO_LABEL_SIGNS: signs, LABEL_CASE: flags.label_case}
    source |= {key: value for key, value in said.items() if key in usual and value is not None}
    why = ""
    if flags.empty_signs:
        source |= {EMPTY_SIGNS: flags.empty_signs, EMPTY_CELLS: "skip"}
        why = f"--set empty_signs={','.join(flags.empty_signs)}"

    def read() -> list[Labelled]:
        return [*SOURCES.build(source, where="DATA").examples(kind)]

    try:
        labelled = read()
    except EmptyCellError as error:
        source |= {EMPTY_CELLS: "skip"}
        labelled, why = read(), str(error)
        if not any(example.split == "train" for example in labelled):
            raise
    if why:
        total = sum(1 for file in files for _ in file.records())
        notes.append(Note("empty", total - len(labelled), total, why))
    check_kind(labelled, kind, where="data")
    counts = count_labels(labelled, kind)
    missing = signs_of_none(counts) if NO_LABEL_SIGNS in usual else {}
    if missing and all(missing.values()) and NO_LABEL_SIGNS not in source:
        source |= {NO_LABEL_SIGNS: [*missing]}
        notes.append(Note("no label", {sign: counts[sign] for sign in missing}))
        labelled = read()
    with below(f"{files[0].path}: source"):
        check_groups(labelled)
        labelled = with_enough_rows(labelled, kind, source, flags.min_rows_per_class)
    labelled = [example._replace(row=kind.prepared(example.row)) for example in labelled]
    by_split, removed = without_duplicates(labelled, kind)
    examples = Examples(kind, source, by_split, removed, labelled)
    _ask(examples, flags)
    return examples, guessed.task


def _guess(source: Json, flags: Flags, notes: list[Note]) -> Guess:
    """Returns the guessed kind and columns of the files, with the settings of their labels."""
    guessed = Guess("seq2seq", dict(flags.columns))
    if source.get("format") != PARALLEL:
        files = [file for file in files_of(source) if file.split == "train"]
        place, form = str(files[0].path), files[0].format
        records = [r._replace(place=f"{f.path} {r.place}") for f in files for r in f.records()]
        if not records:
            raise ValueError(f"{place}: the file has no rows")
        columns: dict[str, Column] = {}
        if form in ("conll", "conllu"):
            words, tags = ("FORM", "UPOS") if form == "conllu" else ("words", "tags")
            guessed = Guess("tagging", {"words": words, "tags": tags} | dict(flags.columns))
        else:
            columns = columns_of(records)
            own = flags.model_copy(update={"split": NONE}) if "train" in source else flags
            try:
                guessed = guess(columns, own, notes)
                notes += notes_on_columns(columns, guessed, own, source)
            except Unclear as unclear:
                listed = "".join(f"\n  {column}" for column in columns.values())
                end = "" if str(unclear).endswith("?") else "."
                raise ValueError(f"{place}: {unclear}{end} The columns:{listed}") from None
        target = str(guessed.columns[TASKS[guessed.kind].target])
        key = "tag_names" if guessed.kind == "tagging" else "label_names"
        names = getattr(flags, key)
        if names is None and target in columns and key in TASKS[guessed.kind].cell_settings:
            values = columns[target].items or columns[target].values
            names, file = names_of_numbers(source, target, values)
            notes += [Note("numbered classes", file, target, names, key)] if names else []
        if names and key == "label_names":
            guessed.settings[key] = names
        if guessed.kind == "tagging":
            cells = {r.place: listed_tags(structured(r.cells.get(target)), "tags") for r in records}
            lists = {p: [*map(str, cell)] for p, cell in cells.items() if isinstance(cell, list)}
            whole = {p: tags for p, tags in lists.items() if all(tags)}
            settings, guessed.task, why = _tag_settings(whole, flags.tag_scheme, names, place)
            guessed.settings |= settings
            notes.append(Note("tags", target, guessed.columns["words"], why))
    for key in (GROUP, TIME):
        if getattr(flags, key) and key not in guessed.settings:
            raise Unclear("no column", key)
    roles = roles_of(TASKS[guessed.kind])
    for role in flags.columns.keys() - {*roles}:
        raise Unclear("no role", role, guessed.kind, [*roles])
    return guessed


def _tag_settings(
    tagged: dict[str, list[str]], scheme: str | None, names: list[str] | None, file: str
) -> tuple[Json, Json, str]:
    """Returns the settings of the source and of the task for tags, and a note that explains them.
    ``tagged`` has the tags of each sentence by the sentence's place in the file. Raises Unclear,
    which begins with ``file`` or a place, for tags in no known scheme."""
    settings, names = Json(), names or []
    counts = Counter(tag for tags in tagged.values() for tag in tags)
    if len(counts) == 1:
        raise Unclear("one tag", file, repr(next(iter(counts))))
    if scheme != WORDS and all(re.fullmatch(SHAPES["number tag"], tag) for tag in counts):
        numbers = {tag: int(float(tag)) for tag in counts}
        if not all(0 <= number < len(names) for number in numbers.values()):
            raise Unclear("numbers", file, sorted(counts)[:8])
        settings["tag_names"] = names
        tagged = {place: [names[numbers[tag]] for tag in tagged[place]] for place in tagged}
        counts = Counter(tag for tags in tagged.values() for tag in tags)
    inside = {*counts} - {OUTSIDE}
    odd = [tag for tag in counts if tag in inside and not re.fullmatch(SHAPES["span tag"], tag)]
    scheme = scheme or (None if odd else written_as([*tagged.values()]).scheme)
    few_outside = sum(counts[tag] for tag in OUTSIDES) < MANY_OUTSIDE * counts.total()
    are_odd_spans = any(re.fullmatch(SHAPES["odd span tag"], tag) for tag in odd)
    is_any_span = len(odd) < len(inside) or are_odd_spans
    if scheme == WORDS or (scheme is None and odd and few_outside and not is_any_span):
        return settings, {"metric": "word_accuracy"}, "Tags of single words, scored word by word."
    if scheme is None:
        place = next((p for p, tags in tagged.items() if not {*odd}.isdisjoint(tags)), file)
        raise Unclear("tags", place, {tag: counts[tag] for tag in odd or counts})
    return settings | {"tag_scheme": scheme}, {}, f"Tags in {scheme.upper()}. (--set tag_scheme)"


def _ask(examples: Examples, flags: Flags) -> None:
    """Raises Unclear for answers and texts that may be none, unless the flags say what they are."""
    kind, rows, file = examples.kind, examples.labelled, examples.source["path"]
    if kind.name == "regression" and flags.empty_signs is None:
        for sign, number, _ in far_targets(examples):
            if number > 1:
                raise Unclear("empty signs", file, f"{sign} ({number} rows)", sign)
    by_split = {s: {a for e in rows if e.split == s for a in kind.labels_of(e.row)} for s in SPLITS}
    for split in SPLITS[1:] if kind.has_classes and by_split["train"] else ():
        if by_split[split] and by_split["train"].isdisjoint(by_split[split]):
            first, other = (sorted(by_split[s])[:8] for s in ("train", split))
            raise Unclear("other labels", file, first, split, other)
    counts = Counter(label for e in rows for label in kind.labels_of(e.row))
    truths = {a: n for a, n in counts.items() if a.lower() in ("true", "false", "0", "1")}
    if len({label.isdigit() for label in truths}) > 1:
        raise Unclear("truth values", file, truths)
    few = {label: number for label, number in counts.items() if number <= 2}
    is_asked = kind.stratified and "min_rows_per_class" not in flags.model_fields_set
    if few and is_asked and max(counts.values()) >= LEAST_OF_CLASS:
        raise Unclear("rare", file, few)
    inputs = [kind.inputs_of(example.row) for example in rows]
    texts = [row.get(column) for row in inputs for column in ("text", "text_pair")]
    counts = Counter(text.strip() for text in texts if isinstance(text, str))
    signs = {text: number for text, number in counts.items() if is_missing(text)}
    if sum(signs.values()) > 1 and flags.empty_signs is None:
        raise Unclear("empty signs", file, signs, ",".join(signs))


def far_targets(examples: Examples) -> Iterator[tuple[str, int, list[str]]]:
    """Yields the smallest and the largest target if it is farther from the next one than all others
    are from each other, its number of rows, and the range of the others."""
    counts = pandas.Series([e.row["target"] for e in examples.labelled]).value_counts()
    ordered = [*counts.sort_index().index]
    for own, *rest in (ordered, ordered[::-1]) if len(ordered) > LEAST_VALUES else ():
        if abs(own - rest[0]) > abs(rest[-1] - rest[0]):
            between = [f"{number:g}" for number in sorted((rest[0], rest[-1]))]
            yield f"{own:g}", int(counts[own]), between


def notes_on_rows(examples: Examples) -> Iterator[Note]:
    """Yields notes on the rows, their answers and their texts."""
    kind, source, num = examples.kind, examples.source, examples.num
    yield Note("rows", [f"{num[split]:,} {split}" for split in SPLITS], _drawn(examples))
    if shared := [f"{n:,} rows of {split}" for split, n in examples.removed.items() if n]:
        yield Note("removed", " and ".join(shared))
    if (kind.stratified or kind.right_if is not None) and num["test"] < FEW_TEST_ROWS:
        yield Note("margin", num["test"], 100 * 1.96 * math.sqrt(0.25 / max(num["test"], 1)))

    # Answers
    if labels := Counter(examples.labels).most_common():
        some = [f"{name[:LETTERS_SHOWN]}: {number:,}" for name, number in labels[:SHOWN_LABELS]]
        yield Note("classes", len(labels), kind.target, some)
    for split in SPLITS[1:]:
        given = {label for e in examples.by_split[split] for label in kind.labels_of(e.row)}
        if split in source and len(given) == 1 < len(labels):
            yield Note("placeholder", split, next(iter(given)))
    if kind.name == "regression":
        values = pandas.Series([example.row["target"] for example in examples.labelled])
        ends, counts = values.quantile([0, 0.5, 1]), values.value_counts()
        shown = [f"{number:g}" for number in (*ends, counts.index[0])]
        yield Note("numbers", *shown, counts.iloc[0])
        for far, number, others in far_targets(examples) if "empty_signs" not in source else ():
            ids = (e.id for e in examples.labelled if f"{e.row['target']:g}" == far)
            if number == 1:
                yield Note("lone", far, *others, next(ids))
    words = defaultdict[str, list[set[str]]](list)  # of the rows of each class
    for example in examples.labelled[:MOST_ROWS] if kind.stratified else ():
        text = " ".join(kind.texts(example.row))
        words[kind.labels_of(example.row)[0]].append({*text.split()})
    num_classes = Counter(word for sets in words.values() for word in set.union(*sets))
    often = {label: sets for label, sets in words.items() if len(sets) >= LEAST_OF_CLASS}
    shared = {label: sorted(set.intersection(*sets)) for label, sets in often.items()}
    own = {a: [word for word in shared[a] if num_classes[word] == 1][:1] for a in shared}
    leaks = [f"{short(word)} of {label}" for label in own for word in own[label]]
    if len(leaks) > len(words) / 2:
        yield Note("leak", leaks[:SHOWN_LABELS])

    # Texts
    rows = [example.row for example in examples.labelled]
    inputs = pandas.Series([kind.same_input(row) for row in rows], dtype=str)
    if repeated := inputs.duplicated().sum():
        answers = pandas.Series([*map(kind.answer, rows)], dtype=str)
        several = (answers.groupby(inputs).transform("nunique") > 1).sum()
        also = f" {several:,} rows have an input with several answers." if several else ""
        often = inputs.value_counts(sort=True)
        first = short(" ".join(kind.texts(rows[(inputs == often.index[0]).argmax()])))
        yield Note("repeats", repeated, len(rows), first, often.iloc[0], also)
    if shares := examples.languages:
        yield Note(
            "language", [f"{LANGUAGES.get(code, code)} {shares[code]:.0%}" for code in shares]
        )
    numbers = examples.count_words(examples.inputs)
    yield Note("words", *np.quantile(numbers, [0.5, 0.95, 1.0]))
    files = files_of(source)
    lines = [1 + text.strip().count("\n") for text in examples.inputs]
    if files[0].format in ("csv", "tsv") and max(lines) >= ODD_LINES:
        longest = examples.by_split["train"][lines.index(max(lines))]
        yield Note("lines", max(lines), longest.id)
    yield from odd_texts(examples.inputs, files[0].path)


def _drawn(examples: Examples) -> str:
    source = examples.source
    if times := times_of(examples.by_split):
        begins = ", ".join(f"{split} from {times[split][0]}" for split in SPLITS[1:])
        return f"drawn in the order of {source[TIME]}, about 80/10/10: {begins}"
    if "split" in source:
        return "as the column has them; a split that it does not name is drawn from train"
    drawn = [split for split in SPLITS if split not in source]
    if len(drawn) < 2:
        return f"{drawn[0]} drawn from train" if drawn else "as the files have them"
    return f"drawn by a hash of {source.get(GROUP) or 'the input'}, 80/10/10"
