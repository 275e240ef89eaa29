"""Looks at rows and columns for what would lead to a wrong study: notes, and questions."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from shlex import quote
from typing import Any

import pandas

from stages.core.artifacts import Json
from stages.proposal.columns import MOST, Column
from stages.proposal.flags import Flags, flag_of
from stages.proposal.questions import LANGUAGES, Note, Unclear
from stages.proposal.roles import Guess, as_list, names_read
from stages.proposal.rows import Examples
from stages.sources._columns import GROUP, draws_test
from stages.tasks._cells import folded, is_missing, short
from stages.tasks._task import SPLITS, TASKS

MAX_ROWS, MAX_TEXTS = 20_000, 300  # that are looked at
MANY = 0.05  # share of rows that is worth a word
LEAST_GROUPS = 10
LEAST_OF_CLASS = 10  # rows, fewer of which may share a word by chance
LEAST_LETTERS, LEAST_TEXTS = 30, 10  # of a text, and such texts, to name the language


def unread_columns(
    columns: Mapping[str, Column], guessed: Guess, flags: Flags, source: Json
) -> Iterator[Note]:
    """Yields notes on columns that are not read. Raises Unclear if one of them tells apart equal
    inputs with several answers."""
    kind, names, settings = TASKS[guessed.kind], guessed.columns, guessed.settings
    target = as_list(names[kind.target])[0]
    used = {*names_read(names), *(settings.get(key) for key in ("split", "group", "time"))}
    left = [column for name, column in columns.items() if name not in used]
    if "text" in names and left:
        table = pandas.DataFrame({n: [*map(str, c.cells[:MAX_ROWS])] for n, c in columns.items()})
        read = [name for name in names_read(names) if name not in as_list(names[kind.target])]
        inputs = table[read].map(folded).groupby(read).ngroup()
        several = table.groupby(inputs)[target].transform("nunique") > 1
        is_open = "text_pair" in kind.optional and not {"text", "text_pair"} & flags.columns.keys()
        for column in left if is_open and several.sum() >= MANY * len(table) else ():
            answers = table[several].groupby([inputs[several], column.name])[target].nunique()
            if column.recurs and (answers == 1).mean() >= MOST and "text_pair" not in names:
                raise Unclear("aspect", several.sum(), len(table), column.name, *read[:1])
        places = [c for c in left if c.hints_at("offset") and c.are_numbers and c.are_whole]
        if is_open and len(places) == 2:
            begins, ends = (pandas.to_numeric(table[c.name], "coerce") for c in places)
            are_inside = begins.between(0, ends, "left") & (ends <= table[read[0]].str.len())
            if are_inside.mean() >= MOST:
                raise Unclear("spans", *(c.name for c in places), read[0])
        is_drawn = GROUP not in settings and draws_test(source | settings)
        for column in left if is_drawn else ():
            pairs = table.groupby([column.name, target]).size().groupby(level=0)
            often = table[target].value_counts(normalize=True).max()
            sure = pairs.max().sum() / len(table)
            is_some = max(LEAST_GROUPS, table[target].nunique() + 1) <= column.distinct
            is_some &= 2 * column.distinct <= column.filled == column.num
            is_name = column.are_strings or column.hints_at("id")
            is_sure = is_name and sure >= max(MOST, (1 + often) / 2)
            if is_some and (is_sure or column.hints_at("group")):
                yield Note(
                    *("group", quote(column.name), column.distinct),
                    f", and {sure:.0%} of their rows share an answer" if is_sure else "",
                )
    if left:
        more = [c.name for c in left if c.may_be_text and c.distinct > 1 and not c.is_label]
        texts = as_list(names.get("text", []))
        ordered = quote(",".join(name for name in columns if name in {*texts, *more}))
        joined = f"--text {ordered} joins texts" if more and texts else ""
        shown = joined or " ".join(map(flag_of, names))
        yield Note("unread", ", ".join(column.name for column in left), shown)


def look_at(examples: Examples, flags: Flags) -> Iterator[Note]:
    """Yields notes on answers and texts. Raises Unclear for answers and texts that may be no such,
    unless the flags say what they are."""
    yield from _answers(examples, flags)
    yield from _repeats(examples)
    yield from _texts(examples, flags)


def _answers(examples: Examples, flags: Flags) -> Iterator[Note]:
    kind, source, rows = examples.kind, examples.source, examples.labelled
    file = source["path"]
    if kind.name == "regression":
        yield from _numbers(examples, flags)
    by_split = {s: {a for e in rows if e.split == s for a in kind.labels_of(e.row)} for s in SPLITS}
    for split in SPLITS[1:] if kind.has_classes and by_split["train"] else ():
        if by_split[split] and by_split["train"].isdisjoint(by_split[split]):
            shown = [", ".join(sorted(by_split[s])[:8]) for s in ("train", split)]
            raise Unclear("other labels", file, shown[0], split, shown[1])
    counts = Counter(label for e in rows for label in kind.labels_of(e.row))
    truths = [a for a in counts if a.lower() in ("true", "false", "0", "1")]
    if len({a.isdigit() for a in truths}) > 1:
        raise Unclear("truth values", file, ", ".join(f"{a!r} ({counts[a]})" for a in truths))
    few = [label for label, number in counts.items() if number <= 2]
    is_asked = kind.stratified and "min_rows_per_class" not in flags.model_fields_set
    if few and is_asked and max(counts.values()) >= LEAST_OF_CLASS:
        raise Unclear("rare", file, ", ".join(f"{label!r} ({counts[label]})" for label in few[:8]))
    words = defaultdict[str, list[set[str]]](list)
    for example in rows[:MAX_ROWS] if kind.stratified else ():
        text = " ".join(kind.texts(example.row))
        words[kind.labels_of(example.row)[0]].append({*text.split()})
    shared = {label: set.intersection(*sets) for label, sets in words.items()}
    num_classes = Counter(word for sets in words.values() for word in set.union(*sets))
    own = {a: [w for w in shared[a] if num_classes[w] == 1] for a in words}
    own = {a: min(of) for a, of in own.items() if of and len(words[a]) >= LEAST_OF_CLASS}
    if len(own) > len(words) / 2:
        yield Note("leak", ", ".join(f"{short(w)} of {a}" for a, w in [*own.items()][:8]))


def _numbers(examples: Examples, flags: Flags) -> Iterator[Note]:
    """Yields the range of the targets, and the row of a target far from all others; raises Unclear
    if several rows have it."""
    rows = examples.labelled
    values = pandas.Series([e.row["target"] for e in rows])
    counts = values.value_counts()
    ordered = [*counts.sort_index().index]
    ends = [f"{number:g}" for number in values.quantile([0, 0.5, 1])]
    yield Note("numbers", *ends, f"{counts.index[0]:g}", counts.iloc[0])
    for own, *rest in (ordered, ordered[::-1]) if len(ordered) > LEAST_GROUPS else ():
        if abs(own - rest[0]) <= abs(rest[-1] - rest[0]) or flags.empty_signs is not None:
            continue
        number, shown = int(counts[own]), f"{own:g}"
        if number > 1:
            raise Unclear("empty signs", examples.source["path"], f"{shown} ({number} rows)", shown)
        id = next(e.id for e in rows if e.row["target"] == own)
        yield Note("lone", shown, *(f"{n:g}" for n in sorted((rest[0], rest[-1]))), id)


def _repeats(examples: Examples) -> Iterator[Note]:
    kind, answers = examples.kind, defaultdict[str, Counter[str]](Counter)
    first: dict[str, str] = {}
    for example in examples.labelled:
        key = kind.same_input(example.row)
        first.setdefault(key, " ".join(kind.texts(example.row)))
        answers[key][kind.answer(example.row)] += 1
    total = sum(of.total() for of in answers.values())
    if len(answers) < total:
        most = max(answers, key=lambda key: answers[key].total())
        several = sum(of.total() for of in answers.values() if len(of) > 1)
        repeated = total - len(answers)
        also = f" {several:,} rows have an input with several answers." if several else ""
        yield Note("repeats", repeated, total, short(first[most]), answers[most].total(), also)


def _texts(examples: Examples, flags: Flags) -> Iterator[Note]:
    texts = Counter(
        text.strip()
        for example in examples.labelled
        for column, text in examples.kind.inputs_of(example.row).items()
        if column in ("text", "text_pair") and isinstance(text, str)
    )
    signs = {text: number for text, number in texts.items() if is_missing(text)}
    if sum(signs.values()) > 1 and flags.empty_signs is None:
        shown = ", ".join(f"{sign!r} ({number:,})" for sign, number in signs.items())
        raise Unclear("empty signs", examples.source["path"], shown, ",".join(signs))
    if shares := languages(examples):
        named = [f"{LANGUAGES.get(code, code)} {share:.0%}" for code, share in shares.items()]
        yield Note("language", ", ".join(named))


def languages(examples: Examples) -> dict[str, float]:
    """Returns the share of each language among the texts of train, by its code in ISO 639, the most
    frequent first; empty for few or short texts."""
    long = [text for text in examples.inputs[:MAX_TEXTS] if len(text) >= LEAST_LETTERS]
    if len(long) < LEAST_TEXTS:
        return {}
    identifier = _identifier()
    identifier.set_languages(None)
    # Nigerian Pidgin is seen in short English sentences of names.
    identifier.set_languages([code for code in identifier.nb_classes if code != "pcm"])
    counts = Counter(identifier.classify(text)[0] for text in long)
    if len(counts) > 1:  # short texts seem to be in any language
        identifier.set_languages([code for code, n in counts.items() if n >= MANY * len(long)])
        counts = Counter(identifier.classify(text)[0] for text in long)
    return {code: number / len(long) for code, number in counts.most_common()}


@cache
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE)
