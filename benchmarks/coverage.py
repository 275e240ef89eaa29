"""How often the claims of a whole study are right, in simulated studies: benchmarks/coverage.md.

Studies are drawn as tests/planted_effects.py says: two architectures, two sizes, pretrained or not,
three seeds, three tasks and two baselines, unless the case says otherwise. Claims are those of the
first screen: main effects, and the lead of the model that is best on validation rows over the
baseline that is best on them.

    nice -n 10 python -m benchmarks.coverage 400 > benchmarks/coverage.md    # about 20 minutes
"""

import argparse
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np

from stages.findings.effects import EFFECTS_LEVEL, LEADS_LEVEL
from stages.findings.facts import Estimate, LeadCertainty, Verdict
from tests.planted_effects import Case, Drawn, crossed, drawn

TINY = 1e-9
EVERY = 4  # interactions are looked at in one of so many studies, since they take longest
CROSSED, THREE = crossed("a", "b"), crossed("a", "b", "c")
SIX = tuple(("a", "small", f"corpus{i}") for i in range(6))
PLANTED = {"b": 4.0, "large": 2.0, "yes": 2.0}


def _wild(times: float, *, only: int | None = None, name: str, task: int) -> float:
    return times if name == "a_small_no" and only in (None, task) else 1.0


def _unequal(name: str) -> int:
    fewer_or_more = {"a_small_no": 2, "b_large_yes": 5, "a_large_yes": 5, "crf": 5, "tfidf": 5}
    return fewer_or_more.get(name, 3)


NONE = Case("no effects", CROSSED, {})
WILD = replace(NONE, name="one wild model x4", spread=lambda n, t: _wild(4, name=n, task=t))
FOUND = Case("planted 4, 2, 2", CROSSED, PLANTED)
CASES = [
    NONE,
    replace(NONE, name="no effects, 5 seeds", seeds=lambda name: 5),
    replace(NONE, name="no effects, 8 tasks", tasks=8),
    replace(NONE, name="no effects, one task", tasks=1),
    replace(NONE, name="one wild cell x5", spread=lambda n, t: _wild(5, only=1, name=n, task=t)),
    WILD,
    replace(WILD, name="wild model x4, one task", tasks=1),
    replace(NONE, name="rows in 30 groups", groups=30),
    replace(NONE, name="unequal seeds (2 to 5)", seeds=_unequal),
    replace(NONE, name="seeds alike in pretrained", by_level=0.03),
    replace(NONE, name="three architectures", models=THREE),
    replace(WILD, name="three, wild model x4", models=THREE),
    Case("six equal the baseline", SIX, {}),
    Case("one model 7 ahead", SIX, {"corpus0": 7.0}, best=0.0),
    replace(NONE, name="two methods, 2 apart", methods=("full", "lora"), gains={"lora": 2.0}),
    FOUND,
    replace(FOUND, name="planted, 5 seeds", seeds=lambda name: 5),
    replace(FOUND, name="planted, 8 tasks", tasks=8),
    Case("planted on one task", CROSSED, {"b": 6.0, "yes": 6.0}, only=0),
    replace(FOUND, name="planted, wild model x4", spread=WILD.spread),
    Case("three architectures 0, 2, 4", THREE, {"b": 2.0, "c": 4.0, "large": 2.0, "yes": 2.0}),
]


class Counts:
    """What the studies of a case claimed."""

    def __init__(self) -> None:
        self.covered: list[list[bool]] = []  # by study and main effect
        self.of_interactions: list[bool] = []
        self.of_contrasts: list[bool] = []
        self.false_effect: list[bool] = []
        self.false_lead: list[bool] = []
        self.found: list[list[bool]] = []  # by study and main effect
        self.truths: list[float] = []
        self.leads: list[bool] = []  # whether true leads are claimed

    def add(self, study: Drawn) -> None:
        self.truths = [study.truth(effect) for effect in study.results.effects]
        pairs = [*zip(study.results.effects, self.truths, strict=True)]
        self.covered.append([_covers(effect.estimate, truth) for effect, truth in pairs])
        claimed = [
            (effect.verdict is Verdict.SIGNIFICANT, effect.estimate.value * truth > TINY**2)
            for effect, truth in pairs
        ]
        self.false_effect.append(any(claim and not right for claim, right in claimed))
        self.found.append([claim and right for claim, right in claimed])
        if len(self.covered) % EVERY == 0:  # planted as sums, so that no interaction is true
            self.of_interactions += [
                _covers(each.estimate, 0.0) for each in study.results.interactions
            ]
        for compared in study.results.compared:
            truth = study.difference(compared)
            self.of_contrasts.append(_covers(compared.estimate, truth))
        false = False
        for answer in study.results.answers:
            truth = study.lead(answer)
            claims = bool(answer.lead) and answer.lead.certainty is LeadCertainty.LEADS
            false = false or (claims and truth <= TINY)
            if truth > 0.05:
                self.leads.append(claims)
        self.false_lead.append(false)

    def line(self, name: str) -> str:
        """Returns the line of a case in the table, in percent."""
        covered = 100 * np.array(self.covered, dtype=float)
        by_effect = covered.mean(axis=0)
        coverage = f"{covered.mean():.1f} ({by_effect.min():.1f}, {by_effect.max():.1f})"
        any_false = np.array(self.false_effect) | np.array(self.false_lead)
        power = 100 * np.mean(self.found, axis=0)
        found = [
            f"{100 * abs(truth):.3g}: {share:.0f}"
            for truth, share in zip(self.truths, power, strict=True)
            if abs(truth) > TINY
        ]
        found = found if len(found) <= 5 else [f"{len(found)} effects: {power.mean():.0f}"]
        if self.leads:
            found.append(f"lead: {_percent(self.leads)}")
        cells = [
            *(name, coverage, _percent(self.of_interactions), _percent(self.of_contrasts)),
            *(_percent(self.false_effect), _percent(self.false_lead), _percent(any_false)),
            ", ".join(found),
        ]
        return f"| {' | '.join(cells)} |"


def _covers(estimate: Estimate, truth: float) -> bool:
    if estimate.low is None or estimate.high is None:
        return False
    return estimate.low <= truth <= estimate.high


def _percent(claims: object) -> str:
    values = np.asarray(claims, dtype=float)
    return f"{100 * values.mean():.1f}" if values.size else "-"


def counted(number: int, place: int) -> Counts:
    """Draws ``number`` studies of a case."""
    counts, rng = Counts(), np.random.default_rng([11, place])
    for _ in range(number):
        counts.add(drawn(CASES[place], rng))
    return counts


def lines(number: int) -> Iterator[str]:
    yield f"""# How often the report's claims are right

Simulated studies of two architectures, two sizes, pretrained or not, with three seeds, three tasks
and two baselines, unless the case says otherwise; {number} studies a case, percent. One baseline
equals the best model, the other is 3 points below it. A wild model's seeds vary several times as
much as the others'. Made by `python -m benchmarks.coverage {number}`; noise and procedure:
tests/planted_effects.py, stages/findings/effects.py.

Coverage: of the 95% intervals of main effects, with the least and the most of any effect, then of
interactions and of single contrasts. False: studies that claim an effect or a lead that is none.
Main effects are tested at {100 * EFFECTS_LEVEL:.0f}% (Holm over all of them), leads at
{100 * LEADS_LEVEL:.0f}% (Holm over tasks). Found: the true effect in points and how often it is
claimed; "lead" are true leads of more than 5 points.

| case | coverage | interactions | contrasts | false effect | false lead | any false | found |
|:--|--:|--:|--:|--:|--:|--:|:--|"""
    with ProcessPoolExecutor(2) as pool:
        for case, counts in zip(
            CASES, pool.map(partial(counted, number), range(len(CASES))), strict=True
        ):
            yield counts.line(case.name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("studies", type=int)
    for line in lines(parser.parse_args().studies):
        print(line, flush=True)


if __name__ == "__main__":
    main()
