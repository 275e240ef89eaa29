"""Sentences on what intervals and verdicts do and do not cover. Objections are in the audit."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from stages.core.params import Screen
from stages.evaluation.precision import narrowing
from stages.evaluation.screening import ScreenedOut
from stages.evaluation.statistics import AGREEING, POWER, PRETRAINING, ROWS, SINGLE
from stages.findings.contrasts import Contrast
from stages.findings.drawn_once import drawn_once
from stages.findings.overlap import Overlap
from stages.findings.results import Results
from stages.findings.scores import Scores
from stages.findings.verdicts import Verdict
from stages.reporting.formats import compact, percent
from stages.reporting.words.files import undecided_rows
from stages.reporting.words.names import quoted


def caveats(results: Results) -> list[str]:
    return [
        *_coverage(results.scores, results.contrasts),
        *_screening(results.params.finetune.screen, results.screened_out),
        *_tests(results),
        *_splits(results),
        *_unequal_overlap(results.overlap, results.contrasts, results.scores),
        *_external_systems(results.scores),
        "Each seed draws its labelled rows from the train split of the task, unless the label "
        "budget is all of it. All results hold for these tasks and corpora; the intervals do not "
        "cover the drawing of others. The highest mean of several runs is partly luck.",
        "Differences are those of means before rounding. `costs.csv` has the time, memory and "
        "energy of each trial.",
    ]


def _coverage(scores: Scores, contrasts: Sequence[Contrast]) -> Iterator[str]:
    """Yields sentences on what the intervals cover."""
    one_seed = sum(contrast.verdict is Verdict.ONE_SEED for contrast in contrasts)
    if one_seed:
        yield (
            f"{one_seed} of {len(contrasts)} contrasts have a side with one pretraining seed. "
            "Their intervals cover fine-tuning seeds and test rows: they compare these checkpoints "
            "and have no verdict, since another seed might give another result. A verdict about "
            "architecture, objective, size, training set or method needs several."
        )
    bases = {contrast.effect.basis for contrast in contrasts}
    bases |= {cell.mean.basis for cell in scores.of_groups}
    if PRETRAINING in bases:
        yield (
            "Intervals cover pretraining seeds, fine-tuning seeds (and with them the labels that "
            "are drawn and, from scratch, the initial weights) and test rows, which are paired."
        )
    if any(cell.has_one_pretraining_seed for cell in scores.cells) and not one_seed:
        yield (
            "Intervals cover fine-tuning seeds and test rows where a run has one pretraining seed: "
            "they are about that checkpoint."
        )
    if any(cell.checkpoints == "published" for cell in scores.cells):
        yield (
            "A published checkpoint was pretrained once. Its seeds vary fine-tuning only, so "
            "verdicts are about that checkpoint, not about how it was made."
        )
    if SINGLE in bases:
        yield "A single trial has no interval and supports no claim."
    if ROWS in bases:
        yield (
            f"'{ROWS}': the interval covers the drawing of test rows, and the number of seeds is "
            "no evidence. This happens, for example, if nothing was trained or if every trial "
            "predicts one constant answer."
        )
    if AGREEING in bases:
        yield (
            "Where all seeds agree in every test row, there is no interval, and their number "
            "supports no claim."
        )


def _splits(results: Results) -> Iterator[str]:
    """Yields sentences on how splits were drawn, and whether the intervals cover the draw."""
    sources = {task: entry.source for task, entry in results.params.tasks.items()}
    few = drawn_once(sources, results.tasks)
    if few:
        rows = ", ".join(f"`{task}` {number:,}" for task, number in few.items())
        yield (
            f"Few rows in use, and their splits were drawn once ({rows}): the intervals cover the "
            "drawing of test rows, but every trial learns from this one train split or a sample "
            "of it. Another draw of the splits gives other scores and perhaps another order of "
            "runs. With `split_per_seed: true` of a task that reads `files` or `hub`, each "
            "fine-tuning seed makes a draw, and the intervals cover the draw."
        )
    drawn = {task: len(about["split_seeds"]) for task, about in results.tasks.items()}
    if any(drawn.values()):
        draws = ", ".join(f"`{task}` {number}" for task, number in drawn.items() if number)
        yield (
            f"Each fine-tuning seed drew train, validation and test anew (draws: {draws}). Scores "
            "are means over the draws, and intervals cover the draw. Draws share rows, so the "
            "variance of the mean of J draws is taken to be (1/J + test rows / train rows) times "
            "the variance between draws, not 1/J times (Nadeau and Bengio 2003)."
        )
    for task, about in results.tasks.items():
        if times := about.get("times"):
            first, last = times["test"]
            yield (
                f"The test rows of `{task}` are the latest, from {first} to {last}. The intervals "
                "cover the drawing of rows of that period, not how scores change from one period "
                "to the next."
            )


def _external_systems(scores: Scores) -> Iterator[str]:
    if scores.external_systems:
        yield (
            "External systems, whose predictions the study was given: "
            f"{quoted(scores.external_systems)}. They learnt from none of its rows, so their "
            "predictions are the same for each number of labels, and their intervals cover test "
            "rows alone. Their training data is unknown and may have these test rows. Their cost "
            "is unknown, too."
        )


def _screening(
    screen: Screen | None, screened_out: Mapping[str, Sequence[ScreenedOut]]
) -> Iterator[str]:
    """Yields sentences on what screening leaves unknown, and on which tasks it left out no run."""
    if screen is None:
        return
    yield (
        f"Screened by {screen.by} (`finetune.screen`): of the pretrained runs only the "
        f"{screen.keep} with the highest estimate on a task are fine-tuned on it. Estimates are "
        "from frozen states and labels of training. The score of a screened-out run is unknown: it "
        "may be better than those compared. How well estimates agree with scores is known only for "
        "the runs that were fine-tuned."
    )
    all_kept = [f"`{task}`" for task, some in screened_out.items() if not some]
    if all_kept:
        yield (
            f"Nothing was screened out on {', '.join(all_kept)}: at most {screen.keep} pretrained "
            f"runs have {screen.by} there."
        )


def _tests(results: Results) -> Iterator[str]:
    """Yields sentences on how many effects are significant, and on how to find more."""
    tested = [contrast for contrast in results.contrasts if contrast.p_holm is not None]
    questions = [question for question in results.questions if question.is_tested]
    if tested:
        alpha = 1 - results.confidence
        before = sum(contrast.significant_before_correction for contrast in tested)
        after = sum(contrast.significant for contrast in tested)
        by_chance = alpha * len(tested)
        would = f"about {by_chance:.0f} at most would" if by_chance >= 0.5 else "hardly any would"
        yield (
            "Tests come in two stages. First the effects averaged over tasks, Holm-corrected for "
            f"their number: {sum(question.significant for question in questions)} of "
            f"{len(questions)} significant. Then the contrasts of these effects on single tasks, "
            f"corrected together: {after} of {len(tested)} significant. Of {len(tested)} intervals "
            f"{before} exclude zero; if nothing differed, {would}. Those that are not significant "
            f"after correction ({before - after}) are marked '{Verdict.BEFORE_CORRECTION.value}'."
        )
        yield from _moderation(results.contrasts)
    if any(contrast.seeds_needed for contrast in tested):
        yield (
            "'About N seeds would be needed' estimates how many seeds on each side would find an "
            f"effect of the observed size in {percent(POWER)} of studies on as many test rows: "
            "pretraining seeds, or fine-tuning seeds where nothing was pretrained here. It is a "
            "rough estimate."
        )
    yield from narrowing(
        undecided_rows(results.contrasts),
        [vars(trial) for trial in results.trials],
        lambda flops: f"{compact(flops)} FLOPs",
        pretraining="pretrain_flops",
        finetuning="finetune_flops",
        per="per TFLOP",
    )


def _moderation(contrasts: Sequence[Contrast]) -> Iterator[str]:
    """Yields a sentence on how much of the variance estimates comes from other contrasts."""
    variances = [c.effect.variance.between for c in contrasts if c.effect.variance]
    moderated = [between for between in variances if between.prior_df]
    if moderated:
        own = median(between.df - between.prior_df for between in moderated)
        others = median(between.prior_df for between in moderated)
        alone = len(variances) - len(moderated)
        yield (
            "Few seeds give a poor estimate of the variance between seeds, so the estimate of a "
            "contrast is averaged with those of comparable contrasts: in the median it has "
            f"{own:.3g} degrees of freedom of its own and borrows {others:.3g}."
            + (f" {alone} of {len(variances)} contrasts have no comparable ones." if alone else "")
        )


def _unequal_overlap(
    overlap: Overlap, contrasts: Sequence[Contrast], scores: Scores
) -> Iterator[str]:
    """Yields a sentence on unequal overlap with test rows, which may explain contrasts of training
    sets."""
    unequal = [
        f"`{task}`, "
        + " v. ".join(f"`{overlap.name(text)}` {overlap.share(text, task):.1%}" for text in texts)
        for task, *texts in overlap.unequal(contrasts, scores.groups)
    ]
    if unequal:
        yield (
            "Training sets that are compared overlap the test rows unequally "
            f"({'; '.join(unequal)}). Part of their difference may be due to that."
        )
