"""Parts of the appendix of both pages: tables and notes."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import fmean

from stages.core import paths
from stages.core.artifacts import Json
from stages.core.components import summary
from stages.core.keys import RunKey
from stages.core.params import HUB, NONE, Params, Run, Section
from stages.evaluation.calibration import NUM_BINS
from stages.evaluation.contamination import LONG, SHORT
from stages.evaluation.rare_class import STATED_PRECISION
from stages.evaluation.records import InputRecord, ScoredTrial
from stages.findings.carry_over import CarryOver
from stages.findings.cells import Cell
from stages.findings.convergence import faults, share_at_edge, training_loss
from stages.findings.coverage import STATED_ACCURACY, Coverage
from stages.findings.groups import Group, names_of
from stages.findings.not_compared import NotCompared
from stages.findings.overlap import Overlap, Text
from stages.findings.pretraining_ends import FALLING, Ending
from stages.findings.scores import Scores
from stages.kinds._kind import SPLITS
from stages.reporting.formats import DASH, compact, formatted, in_parentheses, percent
from stages.reporting.words.names import counted, quoted
from stages.reporting.words.tables import used_parts

Rows = list[dict[str, str]]

NAMES = "Names"
CALIBRATION = "Accuracy, mean probability and expected calibration error"
CALIBRATION_NOTE = (
    "Means over trials, in percent. The probability is the one that a model gives its own "
    "prediction: where it is above the accuracy, the model is overconfident. The expected "
    "calibration error is the mean distance between the two over "
    f"{NUM_BINS} bins of equal width (Guo et al. 2017); with few rows it is above 0 by chance, "
    "also of a calibrated model."
)
RARE_CLASSES = "How well the rarer of two classes is found"
RECALL = f"recall at a precision of {STATED_PRECISION:.0%}"
RARE_NOTE = (
    "Means over trials, in percent, from the probability of the class and no threshold. An average "
    "precision by chance is the share of the class in test. The recall is the highest at any "
    "threshold on the test rows themselves, 0 if none has the precision."
)
CONTAMINATION = "Test rows that overlap the training text of pretraining"
CONTAMINATION_NOTE = (
    f"The share of each task's test rows that overlap the encoded training text: a text of the row "
    f"shares {LONG} consecutive words ({SHORT} if it has fewer than {LONG}) with a document. In "
    f"parentheses: the rows with a text that occurs in full. A text of fewer than {SHORT} words "
    "counts only if it occurs in full as one or more complete sentences. Case and punctuation are "
    "ignored; answers are not searched for. A run may have read less than was encoded."
)
FILTER = (
    "`decontaminate_against: tasks` in an entry of `corpora:` removes matching sentences before "
    "anything is trained on them."
)
INPUTS = "Where labels are read, and rows that were cut"
INPUTS_NOTE = (
    "Which states of a model a label is predicted from (of several, each trial chose on "
    "validation), and how many rows are longer than `finetune.max_tokens` and were cut; in "
    "parentheses the share of all tokens. Of texts that are read in windows, only what is in no "
    "window was cut. For train, as many rows as the largest label budget are counted; for prompts, "
    "the test rows with the shots of the first seed. Shots are cut first, then the text."
)
ENDS = "The end of each pretraining"
ENDS_NOTE = (
    "The slope is that of the validation loss against log2(step) over the last half of a run's "
    "steps, by least squares, in nats per doubling of the steps. Where the learning rate decays, "
    "part of it comes from the decay: it says that a run was stopped early, not what a longer one "
    "would reach. The last quarter is the share of the whole fall in loss that came in the last "
    "quarter of the steps. Rates are the peak learning rates that a run was pretrained at; it kept "
    "the one with the lowest validation loss at the end."
)
CONVERGENCE = "How long each run was fitted, and the values that validation chose from"
CONVERGENCE_NOTE = "A better value than the chosen one may lie beyond an edge of those tried."
CARRY_OVER = "The share of pairs of runs that keep their order"
CARRY_OVER_NOTE = (
    "The decision accuracy of DataDecide (Magnusson et al. 2025): the share of pairs of runs that "
    "have the same order in a smaller experiment with one seed as in a larger one, averaged over "
    "the other seeds; 50% is chance. A single seed is compared with itself, which gives too high a "
    "share. Pairs that tie in the larger experiment do not count; pairs that tie in the smaller "
    "one count half. Validation losses are compared between runs with equal objective, training "
    "text, tokenizer, row length and parent. The {confidence} interval is Student's t over seeds, "
    "or over tasks for the mean over tasks; there is none where all of these agree. "
    "`carry_over.csv` also has the experiments that fewer than two runs share, without a share."
)


@dataclass(frozen=True)
class Appendix:
    """A part of the appendix: tables by caption under one heading, and notes on them."""

    heading: str
    tables: dict[str, Rows]
    notes: Sequence[str] = ()


def names(params: Params, groups: Sequence[Group], trials: Sequence[ScoredTrial]) -> Appendix:
    """Returns a table of what the study's names mean. Methods, baselines, tasks and corpora are
    described by their ``about`` in params.yaml. Objectives, and methods and baselines without
    ``about``, are described by the first sentence of their component's docstring."""
    sections: dict[str, tuple[Section, Iterable[str]]] = {
        "method": ("methods", params.finetune.methods),
        "baseline": ("baselines", params.baselines),
        "task": ("tasks", params.tasks),
        "corpus": ("corpora", params.corpora),
    }
    components = {("methods", name): m.method for name, m in params.finetune.methods.items()}
    components |= {("baselines", name): entry for name, entry in params.baselines.items()}

    def meaning_of(section: Section, name: str) -> str:
        component = components.get((section, name))
        what = summary(section, str(component["name"])) if component else ""
        return params.about(section, name) or what

    runs = [
        {"name": group.name, "is a": "run", "meaning": _run(group, params) + _used(group, trials)}
        for group in groups
    ]
    used = dict.fromkeys(group.objective for group in groups if group.pretrained)
    objectives = [
        {"name": name, "is a": "objective", "meaning": summary("objectives", name)}
        for name in used
        if name != HUB
    ]
    rows = [
        {"name": name, "is a": kind, "meaning": meaning}
        for kind, (section, names) in sections.items()
        for name in names
        if (meaning := meaning_of(section, name))
    ]
    return Appendix(NAMES, {"What the names mean": runs + objectives + rows})


def _run(group: Group, params: Params) -> str:
    """Returns a run in words: ``Encoder of 1.32M weights, pretrained by mlm on all.``"""
    entry, learnt = group.entry, f"pretrained by {group.objective} on {group.corpus}"
    model = f"{group.architecture.replace('_', '-')} of {compact(group.num_params)} weights"
    if entry.is_public:
        further = "" if entry.as_published else f", then {learnt}"
        path, place = Path(entry.model["path"]), ""
        if path.parent == paths.CHECKPOINTS:
            packaged = params.packaged_checkpoints[path.name]
            place = f" of the package {packaged.package} {packaged.version}"
        return f"Published checkpoint {path.name}{place}: {model}{further}."
    how = learnt if group.pretrained else "from scratch"
    parent = "" if entry.parent == NONE else f", beginning with {entry.parent}"
    return f"{model[0].upper()}{model[1:]}, {how}{parent}."


def _used(group: Group, trials: Sequence[ScoredTrial]) -> str:
    """Returns sentences on the tasks that use only a part of a run's model; "" if none does."""
    return "".join(
        f" Its {part} alone is used on {', '.join(tasks)}."
        for part, tasks in used_parts(group, trials).items()
    )


def comparisons_not_made(left_out: Sequence[NotCompared], scores: Scores) -> Appendix:
    every = tuple(scores.tasks), tuple(scores.methods)
    rows = [
        {
            "axis": each.axis or "any",
            "first": f"{each.a}: {each.level_a}" if each.level_a else each.a,
            "second": f"{each.b}: {each.level_b}" if each.level_b else each.b,
            "tasks": "all" if each.tasks == every[0] else ", ".join(each.tasks),
            "methods": "all" if each.methods == every[1] else ", ".join(each.methods),
            "reason": each.reason,
        }
        for each in left_out
    ]
    return Appendix("Comparisons not made", {"Reasons": rows})


def inputs(records: Mapping[str, Sequence[InputRecord]], runs: Mapping[str, Run]) -> Appendix:
    """Returns a table of how much of each task's rows was cut, and from which states labels are
    predicted. Checkpoints with equal values on a task share a row of the table."""
    readers: dict[tuple[str, str, tuple[str, ...]], list[RunKey]] = defaultdict(list)
    for task, of_task in records.items():
        for (checkpoint, read_at), members in groupby(
            of_task, key=lambda record: (record.checkpoint, record.read_at)
        ):
            shares = {str(split): "" for split in SPLITS}
            for record in members:
                rows_cut = record.rows_cut / max(record.rows, 1)
                tokens_cut = record.tokens_cut / max(record.tokens, 1)
                shares[record.split] = f"{rows_cut:.1%} ({tokens_cut:.1%})"
            readers[task, read_at, tuple(shares.values())].append(checkpoint)
    rows = [
        {
            "task": task,
            "runs": "; ".join(names_of(checkpoints, runs)),
            "labels read at": read_at,
            **{f"{split} cut": share for split, share in zip(SPLITS, shares, strict=True)},
        }
        for (task, read_at, shares), checkpoints in readers.items()
    ]
    return Appendix("Inputs", {INPUTS: rows}, [INPUTS_NOTE] if rows else [])


def _with_measure(scores: Scores, measure: str) -> Iterator[tuple[Cell, list[ScoredTrial]]]:
    """Yields each cell that has trials with the measure, and these trials."""
    for cell in scores.cells:
        if trials := [trial for trial in cell.trials if getattr(trial, measure) is not None]:
            yield cell, trials


def rare_classes(scores: Scores) -> Appendix:
    """Returns a table of how well predicted probabilities find the rarer of two classes."""
    rows = [
        {
            "task": cell.task,
            "class": str(trials[0].rare_class),
            "run": cell.group,
            "method": cell.method,
            "labels": cell.label_budget,
            "average precision": _percent([trial.average_precision for trial in trials]),
            RECALL: _percent([trial.recall_at_precision for trial in trials]),
        }
        for cell, trials in _with_measure(scores, "average_precision")
    ]
    return Appendix("Rare classes", {RARE_CLASSES: rows}, [RARE_NOTE] if rows else [])


def calibration(scores: Scores, coverages: Iterable[Coverage]) -> Appendix:
    """Returns how well calibrated the probabilities of predictions are, and what share of texts the
    best run of each task answers at a stated accuracy."""
    rows = [
        {
            "task": cell.task,
            "run": cell.group,
            "method": cell.method,
            "labels": cell.label_budget,
            "accuracy": _percent([trial.accuracy for trial in trials]),
            "probability": _percent([trial.mean_probability for trial in trials]),
            "calibration error": _percent([trial.calibration_error for trial in trials]),
        }
        for cell, trials in _with_measure(scores, "calibration_error")
    ]
    notes = [CALIBRATION_NOTE] if rows else []
    return Appendix("Calibration", {CALIBRATION: rows}, [*notes, *map(covered, coverages)])


def covered(coverage: Coverage) -> str:
    """Returns sentences on the share of texts answered at STATED_ACCURACY, and on temperature
    scaling."""
    cell = coverage.cell
    stated = percent(STATED_ACCURACY)
    name = f"`{cell.task}`: `{cell.group}` with `{cell.method}`"
    rows = f"{coverage.num_validation:,} validation rows"
    if not coverage.num_reached:
        answers = f"{name} answers no text at {stated} accuracy: its {rows} do not reach that."
    elif coverage.accuracy is None:
        answers = (
            f"{name} answers no test row at {stated} accuracy: none is as likely as the "
            f"predictions that reach it on its {rows}."
        )
    else:
        is_missed = round(coverage.accuracy, 3) < STATED_ACCURACY
        share, right = (percent(round(x, 3)) for x in (coverage.share, coverage.accuracy))
        answers = (
            f"{name} answers {share} of texts where it must reach {stated} accuracy: the lowest "
            f"confidence that does was chosen on {rows}. Of what it answers of "
            f"{coverage.num_test:,} test rows in each of {counted(coverage.num_trials, 'trial')}, "
            f"{right} is right{', less than stated' if is_missed else ''}."
        )
        if missed := coverage.num_trials - coverage.num_reached:
            answers += f" {counted(missed, 'trial')} reached it at no threshold."
    before = percent(round(coverage.calibration_error, 3))
    if coverage.calibrated_error is None:
        missing = counted(coverage.num_trials - coverage.num_fitted, "trial")
        return (
            f"{answers} Its calibration error is {before}; no temperature was fitted in {missing} "
            "(too few validation rows, or no minimum of the loss)."
        )
    after = percent(round(coverage.calibrated_error, 3))
    return f"{answers} A temperature changes its calibration error from {before} to {after}."


def _percent(shares: Sequence[float | None]) -> str:
    known = [share for share in shares if share is not None]
    return f"{100 * sum(known) / len(known):.1f}"


def contamination(overlap: Overlap, runs: Mapping[str, Run]) -> Appendix:
    """Returns the overlap of test rows with the training text of pretraining."""
    texts = overlap.contamination
    rows = [
        {"task": task}
        | {
            overlap.name(text): f"{overlap.share(text, task):.1%} "
            f"({overlap.share(text, task, 'exact'):.1%})"
            for text in texts
        }
        for task in (overlap.tasks if texts else ())
    ]
    notes = [CONTAMINATION_NOTE, *(list(_removals(texts)) or [FILTER])] if texts else []
    if public := [name for name, run in runs.items() if run.is_public]:
        notes.append(
            "The overlap of public checkpoints' training text is unknown: " + f"{quoted(public)}."
        )
    return Appendix("Contamination", {CONTAMINATION: rows}, notes)


def _removals(contamination: Mapping[Text, Json]) -> Iterator[str]:
    """Yields a sentence for each corpus from which the decontamination filter removed text."""
    removed = {corpus: counts["removed"] for (corpus, _), counts in contamination.items()}
    for corpus, splits in removed.items():
        if splits:
            sentences, characters, documents = (
                sum(split[what] for split in splits.values())
                for what in ("sentences", "characters", "documents")
            )
            yield (
                f"{sentences:,} matching sentences ({characters:,} characters) were removed from "
                f"`{corpus}` before it was encoded, and with them {documents:,} whole documents."
            )


def pretraining(endings: Sequence[Ending]) -> Appendix:
    """Returns a table of how each pretraining ended, without times or other measured costs."""
    rows = [
        {
            "run": ending.checkpoint.run,
            "seed": str(ending.checkpoint.pretrain_seed),
            "steps": f"{ending.num_steps:,}",
            "validation loss": f"{ending.validation_loss:.3f}",
            "slope per doubling": formatted(ending.slope, "+.3f"),
            "last quarter": formatted(ending.last_quarter, ".0%"),
            "rates tried": ", ".join(
                f"{rate:g}: {'diverged' if loss is None else f'{loss:.3f}'}"
                for rate, loss in ending.rates.items()
            ),
            "kept": f"{ending.kept:g}",
            "place": place_of_rate(ending),
            "next best": formatted(ending.next_best, "+.3f"),
        }
        for ending in endings
    ]
    return Appendix("Pretraining", {ENDS: rows}, [ENDS_NOTE, *_notes(endings)] if rows else [])


def place_of_rate(ending: Ending) -> str:
    """Returns where the kept learning rate is among the tried ones: inside, highest or lowest."""
    if len(ending.rates) == 1:
        return "one rate"
    if not ending.at_edge:
        return "inside"
    return f"{'highest' if ending.num_lower_rates else 'lowest'} of {len(ending.rates)}"


def _notes(endings: Sequence[Ending]) -> Iterator[str]:
    """Yields sentences on whether pretrainings ended too early or diverged, and whether another
    learning rate may be better."""
    if falling := sorted((e for e in endings if e.falls), key=lambda e: e.slope or 0.0):
        steepest = -(falling[0].slope or 0.0)
        yield (
            f"{len(falling)} of {len(endings)} pretrainings were still falling when they were "
            f"stopped, by up to {steepest:.2f} nats per doubling of the steps (from {FALLING:g} "
            "on): a longer pretraining would change what is compared. "
            + _listed(f"`{e.name}` {-(e.slope or 0.0):.2f}" for e in falling)
        )
    if flat := [e for e in endings if e.slope is not None and not e.falls]:
        yield f"Flat at the end: {_listed(f'`{e.name}`' for e in flat)}"
    if unknown := [e for e in endings if e.slope is None]:
        yield (
            "Too few validations in the last half of the steps for a slope (num_validations): "
            + _listed(f"`{e.name}`" for e in unknown)
        )
    if edges := [e for e in endings if e.at_edge]:
        yield (
            "The kept learning rate is the lowest or highest of those tried, so that a better one "
            "may lie beyond: " + _listed(f"`{e.name}` ({place_of_rate(e)})" for e in edges)
        )
    if single := [e for e in endings if len(e.rates) == 1]:
        yield (
            f"{len(single)} of {len(endings)} pretrainings tried one learning rate: how far their "
            "best one lies from it is not known."
        )
    numbers = {e.checkpoint.run: len(e.rates) for e in endings}  # equal for all seeds of a run
    if len({*numbers.values()}) > 1:
        yield (
            "Runs tried different numbers of learning rates, which favours those that tried more: "
            + _listed(f"`{name}` {number}" for name, number in numbers.items())
        )
    if diverged := [
        f"`{e.name}` at {r:g}" for e in endings for r, loss in e.rates.items() if loss is None
    ]:
        yield f"Diverged: {_listed(diverged)}"


def _listed(names: Iterator[str] | Sequence[str]) -> str:
    return ", ".join(names) + "."


def convergence(cells: Sequence[Cell]) -> Appendix:
    """Returns a table with a row for each run or baseline, method and label budget: how long it was
    fitted, how many candidates a trial tried, and how often the smallest or largest was kept."""
    members: dict[tuple[str, str, str], list[Cell]] = defaultdict(list)
    for cell in cells:
        members[cell.group, cell.method, cell.label_budget].append(cell)
    rows = []
    for (group, method, budget), of_key in members.items():
        trials = [trial for cell in of_key for trial in cell.trials]
        loss = training_loss(trials)
        trained = [trial for trial in trials if trial.num_epochs]
        best, last = ([getattr(t, key) for t in trained] for key in ("best_epoch", "num_epochs"))
        rows.append(
            {
                "run": group,
                "method": method,
                "labels": budget,
                "steps": f"{fmean(t.num_steps for t in trials):,.0f}" if loss is not None else DASH,
                "kept epoch": f"{fmean(best):.1f} of {fmean(last):.1f}" if trained else DASH,
                "training loss": formatted(loss, ".3f"),
                "tried": str(max(trial.num_tries for trial in trials)),
                "at an edge of those tried": formatted(share_at_edge(trials), ".0%"),
                "not converged": ", ".join(c.task for c in of_key if faults(c)) or DASH,
            }
        )
    return Appendix("Convergence", {CONVERGENCE: rows}, [CONVERGENCE_NOTE])


def carry_over(carried: Sequence[CarryOver], confidence: float) -> Appendix:
    """Returns a table of how often two runs have the same order in a smaller and a larger
    experiment."""
    rows = []
    for carry in carried:
        if (share := carry.share) is None:
            continue
        low, high = carry.ends or (None, None)
        interval = "" if low is None or high is None else f"{max(low, 0):.0%} to {min(high, 1):.0%}"
        number = len(carry.shares)
        rows.append(
            {
                "task": carry.task or "validation loss",
                "method": carry.method or DASH,
                "labels": carry.label_budget or DASH,
                "what grows": carry.growth,
                "from": carry.smaller,
                "to": carry.larger,
                "runs": str(len(carry.runs)),
                "pairs": str(carry.num_pairs),
                "same order": f"{share:.0%}{in_parentheses(interval)}",
                "mean of": f"{number} {carry.over}" if number > 1 else DASH,
            }
        )
    notes = [CARRY_OVER_NOTE.format(confidence=percent(confidence))] if rows else []
    return Appendix("How small results carry over", {CARRY_OVER: rows}, notes)
