"""How often the report's claims are right, in studies whose truth is planted.

Each study goes through the stages finetune, fit_baseline and evaluate, and the contrasts of the
report; tests/planted.py says what is planted. Prints Markdown; the result of a run by hand, on two
cores of a virtual machine, is in planted_truth.md.

    python benchmarks/planted_truth.py --times 2 > benchmarks/planted_truth.md    # about 40 minutes
"""

import argparse
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from stages.findings.verdicts import Verdict
from tests.planted import NUM_TEST, Design
from tests.planted_claims import Claim, Rate, Truth, claims_of_all, excludes_zero

FEWER = ("reference", "other_corpus", "better_corpus", "encoder_decoder")
DESIGNS = {
    "3 x 2": Design(3, 2),
    "5 x 1": Design(5, 1, groups=FEWER),
    "2 x 3": Design(2, 3, groups=FEWER),
    "1 x 5": Design(1, 5, groups=FEWER),
    "3 x 2, full fine-tuning": Design(3, 2, methods=("full",), groups=FEWER[:3]),
}
STUDIES = dict(zip(DESIGNS, (30, 30, 20, 20, 10), strict=True))  # number by design
APART = 100_000  # between the numbers of studies of two designs


INTRODUCTION = """\
How often the report is right about studies whose truth is planted. `tests/planted.py` says how they
are made: groups of small checkpoints that know more or fewer of a task's words, which are drawn for
each pretraining seed. They are fine-tuned on 96 of 600 labelled rows, evaluated on {rows} test rows
and compared by the project's own stages, by linear probes where nothing else is said. Two studies
share nothing but the words and which label each speaks for.

Seeds are pretraining x fine-tuning. Effects are points of macro-F1, all else but the number of
contrasts is in percent. Studies: {studies}.

Some groups are planted alike: two corpora; an encoder and the encoder of an encoder-decoder; a
model and a wider one. Their true difference is 0, which a right interval of 95 % leaves out in at
most 5 % of contrasts. Elsewhere the true effect is the mean over all other studies, whose standard
error is added to an interval. `benchmarks/planted_truth.py` makes this page.

"Over fine-tuning seeds of one checkpoint" is what a paired t test of the trials of the first
pretraining seed calls significant, which takes no other checkpoints and test rows into account. Of
one pretraining seed (1 x 5) the report has no verdict, and its intervals are about these
checkpoints.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=float, default=1.0, help="as many studies")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    by_design = {
        name: claims_of_all(design, range(first, first + studies), options.processes)
        for name, design, first, studies in _numbered(options.times)
    }
    print(*table(by_design), sep="\n")


def _numbered(times: float) -> Iterator[tuple[str, Design, int, int]]:
    """Yields each design with its first study and its number of studies; no two share a study."""
    for place, (name, design) in enumerate(DESIGNS.items()):
        yield name, design, APART * place, round(times * STUDIES[name])


def table(by_design: dict[str, list[Claim]]) -> Iterator[str]:
    truth = Truth(claim for claims in by_design.values() for claim in claims)
    studies = "; ".join(f"{_num_studies(claims)} of {name}" for name, claims in by_design.items())
    yield INTRODUCTION.format(studies=studies, rows=NUM_TEST)
    yield "## Where there is truly no difference\n"
    yield from _rows(NULL, [*_by_axis(by_design, null=True), *_together(by_design)], truth)
    yield "\nIn a whole study:\n"
    yield from _families(by_design, truth)
    yield "\n## Where there is one\n"
    yield from _rows(EFFECT, [*_by_axis(by_design, null=False)], truth)
    yield "\nBy the size of the effect, of 3 x 2 seeds:\n"
    yield from _rows(EFFECT, [*_by_pair(by_design["3 x 2"])], truth)


Labelled = tuple[str, list[Claim]]
Column = Callable[[list[Claim], Truth], str]


def _percent(claims: list[Claim], outcomes: list[bool]) -> str:
    return f"{100 * Rate.of(claims, outcomes).share:.1f}"


def _covered(claims: list[Claim], truth: Truth) -> str:
    if claims[0].verdict == Verdict.ONE_SEED:  # the interval is about these checkpoints
        return ""
    return _percent(claims, [truth.is_covered(claim, claim.interval) for claim in claims])


def _before(claims: list[Claim], truth: Truth) -> str:
    return _percent(claims, [claim.before_correction for claim in claims])


def _after(claims: list[Claim], truth: Truth) -> str:
    return _percent(claims, [claim.after_correction for claim in claims])


def _wrong_sign(claims: list[Claim], truth: Truth) -> str:
    return _percent(claims, [c.before_correction and truth.has_wrong_sign(c) for c in claims])


def _one_checkpoint(claims: list[Claim], truth: Truth) -> str:
    """Returns the share that seems significant from fine-tuning seeds of one checkpoint a side."""
    if any(math.isnan(claim.over_finetune_seeds[0]) for claim in claims):
        return ""
    return _percent(claims, [excludes_zero(claim.over_finetune_seeds) for claim in claims])


def _size(claims: list[Claim], truth: Truth) -> str:
    sizes = [abs(100 * truth.of(claim)) for claim in claims]
    low, high = (f"{end:.1f}" for end in (min(sizes), max(sizes)))
    return low if low == high else f"{low} to {high}"


NULL: dict[str, Column] = {
    "contrasts": lambda claims, truth: str(len(claims)),
    "interval holds 0": _covered,
    "called significant before correction": _before,
    "after correction": _after,
    "over fine-tuning seeds of one checkpoint": _one_checkpoint,
}
EFFECT: dict[str, Column] = {
    "contrasts": lambda claims, truth: str(len(claims)),
    "true effect": _size,
    "interval holds it": _covered,
    "called significant before correction": _before,
    "after correction": _after,
    "with the wrong sign": _wrong_sign,
}


def _rows(columns: dict[str, Column], parts: list[Labelled], truth: Truth) -> Iterator[str]:
    yield "| seeds and axis | " + " | ".join(columns) + " |\n|---|" + "---|" * len(columns)
    for name, claims in parts:
        yield f"| {name} | {' | '.join(cell(claims, truth) for cell in columns.values())} |"


def _by_axis(by_design: dict[str, list[Claim]], *, null: bool) -> Iterator[Labelled]:
    for name, claims in by_design.items():
        some = [claim for claim in claims if claim.is_null == null]
        axes = dict.fromkeys(claim.axis for claim in some)
        for axis in axes:
            yield f"{name}, {axis}", [claim for claim in some if claim.axis == axis]


def _together(by_design: dict[str, list[Claim]]) -> Iterator[Labelled]:
    """All null contrasts that have a verdict."""
    nulls = [
        c
        for claims in by_design.values()
        for c in claims
        if c.is_null and c.verdict != Verdict.ONE_SEED
    ]
    yield "together, without 1 x 5", nulls


def _by_pair(claims: list[Claim]) -> Iterator[Labelled]:
    for sides in dict.fromkeys(claim.sides for claim in claims if not claim.is_null):
        (a, *_), (b, *_) = sides
        yield f"{a} v. {b}", [claim for claim in claims if claim.sides == sides]


def _families(by_design: dict[str, list[Claim]], truth: Truth) -> Iterator[str]:
    """The share of studies with at least one false claim."""
    columns = "a false claim before correction", "after correction", "a wrong sign after correction"
    yield "| seeds | studies | " + " | ".join(columns) + " |\n|---|" + "---|" * (1 + len(columns))
    for name, claims in by_design.items():
        nulls = [claim for claim in claims if claim.is_null]
        rates = (
            Rate.of(nulls, [claim.before_correction for claim in nulls]),
            Rate.of(nulls, [claim.after_correction for claim in nulls]),
            Rate.of(claims, [c.after_correction and truth.has_wrong_sign(c) for c in claims]),
        )
        shares = " | ".join(f"{100 * rate.of_studies:.1f}" for rate in rates)
        yield f"| {name} | {_num_studies(claims)} | {shares} |"


def _num_studies(claims: list[Claim]) -> int:
    return len({claim.study for claim in claims})


if __name__ == "__main__":
    main()
