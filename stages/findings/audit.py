"""The audit: a sceptical reviewer's questions about a study, answered from its own records.

Each function answers one question of ``AuditQuestion``; its docstring says what an objection is and
which ``values`` and ``details`` the answer has.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from statistics import median
from typing import TYPE_CHECKING

from scipy import special

from stages.evaluation.metrics import scale_of
from stages.evaluation.near_duplicates import NOTEWORTHY_SHARE
from stages.evaluation.records import ScoredTrial
from stages.evaluation.statistics import POWER
from stages.findings.axes import start_of
from stages.findings.cells import Cell
from stages.findings.convergence import faults, share_at_edge
from stages.findings.facts import AuditAnswer, AuditQuestion, LeadCertainty, Mark
from stages.tasks._labelled_rows import distinct_draws

if TYPE_CHECKING:
    from stages.findings.results import Results

AT_EDGE = 0.2  # share of the trials that may keep the smallest or the largest value tried
MOST_VALIDATION = 0.5  # share of a trial's labels that may be validation labels
NOTEWORTHY_CUT = 0.05  # share of a split's rows that are cut
NOTEWORTHY_OVERLAP = 0.03  # share of a task's test rows
UNREAD = "not read"  # in a record's ``read_at`` if the state has not read the rest of the word
SMALL = 2.0  # points; improvements that papers report are often smaller (Card et al. 2020)
# Models that differ on these axes may have different best settings.
UNLIKE = ("architecture", "objective", "size", "pretrained", "published", "checkpoint")
Value = float | int | str | bool | None


def audit(results: "Results") -> list[AuditAnswer]:
    """Returns the answers to all questions, in their order."""
    return [ask(results) for ask in QUESTIONS]


def _answer(
    question: AuditQuestion,
    objection: bool,
    details: Sequence[tuple[str, object]] = (),
    **values: Value,
) -> AuditAnswer:
    return AuditAnswer(question, Mark.OBJECTION if objection else Mark.NONE, values, tuple(details))


def _not_asked(question: AuditQuestion) -> AuditAnswer:
    return AuditAnswer(question, Mark.NOT_ASKED)


def _trained(results: "Results") -> list[Cell]:
    """Returns the cells whose trials were trained in epochs."""
    return [cell for cell in results.scores.cells if cell.trials[0].num_epochs]


def _solved(results: "Results") -> list[Cell]:
    """Returns the cells whose trials are solved probes."""
    return [cell for cell in results.scores.cells if cell.trials[0].converged is not None]


def _trials(cells: Sequence[Cell]) -> list[ScoredTrial]:
    return [trial for cell in cells for trial in cell.trials]


def shared_defaults(results: "Results") -> AuditAnswer:
    """Could a setting that all models share decide the result?

    A setting that suits one architecture, size or start better than another is an objection if the
    study compares such models and has a single value of it. Values: ``num_compared``, the pairs of
    unlike models. Details: (setting, its value).
    """
    question = AuditQuestion.SHARED_DEFAULTS
    unlike = [pair for pair in results.pairs if pair.axis in UNLIKE]
    if not unlike:
        return _not_asked(question)
    groups = {group.name: group for pair in unlike for group in (pair.a, pair.b)}.values()
    trained = [group for group in groups if group.pretrained and not group.entry.as_published]
    shared: dict[str, set[object]] = {
        "start": {start_of(g) if start_of(g) == "local" else None for g in trained},
        "learning rate of pretraining": {
            g.entry.training.rates[0] if len(g.entry.training.rates) == 1 else None for g in trained
        },
        "targets per token": {g.targets_per_token for g in trained},
    }
    for name, method in results.params.finetune.methods.items():
        if method.training and len(method.training.rates) == 1:
            shared[f"learning rate of {name}"] = {method.training.rates[0]}
    for task, entry in results.params.tasks.items():
        if pooling := entry.task.get("pooling"):
            shared[f"pooling on {task}"] = {pooling}
    single = [(name, next(iter(v))) for name, v in shared.items() if len(v) == 1 and v != {None}]
    return _answer(question, bool(single), single, num_compared=len(unlike))


def convergence(results: "Results") -> AuditAnswer:
    """Were models trained until they had learnt what they could?

    An objection is a cell whose trials ended too early or found no minimum, or a pretraining whose
    validation loss still fell. Values: ``cells``, ``unconverged`` cells, ``pretrainings``, those
    that were ``falling``. Details: (cell or checkpoint, its faults or slope).
    """
    cells = [*_trained(results), *_solved(results)]
    if not cells and not results.endings:
        return _not_asked(AuditQuestion.CONVERGENCE)
    faulty = [(_name(c), ", ".join(f.name for f in of)) for c in cells if (of := faults(c))]
    falling = [(str(end.checkpoint), end.slope) for end in results.endings if end.falls]
    return _answer(
        AuditQuestion.CONVERGENCE,
        bool(faulty or falling),
        [*faulty, *falling],
        cells=len(cells),
        unconverged=len(faulty),
        pretrainings=len(results.endings),
        falling=len(falling),
    )


def _name(cell: Cell) -> str:
    return f"{cell.group}, {cell.task}, {cell.method}, {cell.label_budget} labels"


def rates(results: "Results") -> AuditAnswer:
    """Are the learning rates (and penalties of probes) that were kept inside the range tried?

    An objection is a range whose ends were kept often, or a single rate for models that differ in
    architecture, size or start. Values: ``single``, trials with one rate; ``several``;
    ``share_at_edge`` of these; ``pretrainings_at_edge``; ``resting``, pairs of unlike models on a
    single rate. Details: (method, its rates).
    """
    trials = _trials([*_trained(results), *_solved(results)])
    if not trials:
        return _not_asked(AuditQuestion.RATES)
    several = [trial for trial in trials if trial.at_edge is not None]
    share = share_at_edge(several) or 0.0
    edges = sum(ending.at_edge for ending in results.endings)
    single = {trial.run for trial in trials if trial.at_edge is None}
    single |= {end.checkpoint.run for end in results.endings if len(end.rates) == 1}
    resting = sum(
        pair.axis in UNLIKE and bool({pair.a.name, pair.b.name} & single) for pair in results.pairs
    )
    methods = results.params.finetune.methods.items()
    details = [(name, m.training.rates) for name, m in methods if m.training]
    return _answer(
        AuditQuestion.RATES,
        bool(resting or edges) or share > AT_EDGE,
        details,
        single=len(trials) - len(several),
        several=len(several),
        share_at_edge=share,
        pretrainings_at_edge=edges,
        resting=resting,
    )


def tries(results: "Results") -> AuditAnswer:
    """Did all models (and all baselines that choose something) try equally much on validation?

    Values: ``fewest`` and ``most`` tries of a trial. Details: (method or baseline, numbers).
    """
    counts: dict[str, set[int]] = {}
    for cell in results.scores.cells:
        for trial in cell.trials:
            if cell.is_baseline and trial.num_tries > 1:
                counts.setdefault(f"baseline {cell.group}", set()).add(trial.num_tries)
            elif not cell.is_baseline and (trial.num_epochs or trial.converged is not None):
                counts.setdefault(cell.method, set()).add(trial.num_tries)
    if not counts:
        return _not_asked(AuditQuestion.TRIES)
    counts |= (
        {"pretraining": {len(end.rates) for end in results.endings}} if results.endings else {}
    )
    numbers = {number for name, of in counts.items() for number in of if name != "pretraining"}
    unequal = len(numbers) > 1 or len(counts.get("pretraining", ())) > 1
    details = [(name, sorted(of)) for name, of in counts.items()]
    return _answer(AuditQuestion.TRIES, unequal, details, fewest=min(numbers), most=max(numbers))


def labelled_rows(results: "Results") -> AuditAnswer:
    """Are the labelled rows drawn anew for each seed, and does validation need few labels?

    An objection is a label budget with one draw, or more labels for validation than for training.
    Values: ``one_draw``, places with a single draw; ``validation_share``, the largest. Details:
    (task and label budget, number of draws).
    """
    finetune, draws, most = results.params.finetune, list[tuple[str, object]](), 0.0
    for task, about in results.tasks.items():
        validation = about["num_examples"]["validation"]
        for budget in finetune.label_budgets:
            pairs = distinct_draws(
                budget,
                pretrain_seeds=results.params.pretrain_seeds,
                finetune_seeds=finetune.seeds,
                about=about,
                task=task,
            )
            number = results.num_labels[task][str(budget)]
            most = max(most, validation / (validation + number))
            draws.append((f"{task}, {budget} labels", len(pairs)))
    one_draw = sum(number == 1 for _, number in draws)
    objection = bool(one_draw) or most > MOST_VALIDATION
    return _answer(
        AuditQuestion.LABELLED_ROWS, objection, draws, one_draw=one_draw, validation_share=most
    )


def read_input(results: "Results") -> AuditAnswer:
    """Do models read whole texts, and whole words before they label them?

    Values: ``largest_cut``, the largest share of a split's rows that is cut; ``unread``, models and
    tasks whose labels are predicted before the end of a word. Details: (task, share cut).
    """
    records = [(task, record) for task, of in results.inputs.items() for record in of]
    if not records:
        return _not_asked(AuditQuestion.INPUT)
    cut: dict[str, float] = {}
    for task, record in records:
        share = record.rows_cut / max(record.rows, 1)
        cut[task] = max(cut.get(task, 0.0), share)
    unread = {(task, record.run) for task, record in records if UNREAD in record.read_at}
    largest = max(cut.values())
    objection = largest > NOTEWORTHY_CUT or bool(unread)
    return _answer(
        AuditQuestion.INPUT, objection, [*cut.items()], largest_cut=largest, unread=len(unread)
    )


def test_rows(results: "Results") -> AuditAnswer:
    """Is train free of near-duplicates of test rows, and are test rows drawn more than once?

    Values: ``largest_share`` of near-duplicates, ``fewest_rows`` of a task's test set,
    ``grouped_tasks``, whose rows are counted by document, package or group. Details: (task,
    near-duplicates).
    """
    shares = {task: near.share for task, near in results.near_duplicates.items()}
    fewest = min(about["num_examples"]["test"] for about in results.tasks.values())
    return _answer(
        AuditQuestion.TEST_ROWS,
        max(shares.values()) > NOTEWORTHY_SHARE,
        [*results.near_duplicates.items()],
        largest_share=max(shares.values()),
        fewest_rows=fewest,
        grouped_tasks=len(results.grouped_tasks),
    )


def overlap(results: "Results") -> AuditAnswer:
    """Is the text of pretraining free of test rows?

    The text of public checkpoints and of external systems is unknown, which is an objection, too.
    Values: ``largest_share``, ``public`` models, ``external`` systems. Details: (task and text,
    share).
    """
    shares = results.overlap.shares
    public = sum(group.entry.is_public for group in results.groups)
    external = len(results.scores.external_systems)
    if not (shares or public or external):
        return _not_asked(AuditQuestion.OVERLAP)
    largest = max(shares.values(), default=None)
    high = largest is not None and largest > NOTEWORTHY_OVERLAP
    return _answer(
        AuditQuestion.OVERLAP,
        high or bool(public or external),
        [(f"{task}, {text}", share) for (task, text), share in shares.items()],
        largest_share=largest,
        public=public,
        external=external,
    )


def seeds(results: "Results") -> AuditAnswer:
    """Was every model pretrained with several seeds?

    Values: ``fewest`` and ``most`` seeds. Details: (model, seeds) of those with one.
    """
    numbers = {
        cell.group: cell.num_pretrain_seeds
        for cell in results.scores.cells
        if cell.checkpoints == "pretrained here"
    }
    if not numbers:
        return _not_asked(AuditQuestion.SEEDS)
    single = [(name, number) for name, number in numbers.items() if number == 1]
    return _answer(
        AuditQuestion.SEEDS,
        bool(single),
        single,
        fewest=min(numbers.values()),
        most=max(numbers.values()),
    )


def power(results: "Results") -> AuditAnswer:
    """How small an effect could the study find in four of five repetitions (Card et al. 2020)?

    An objection is more than 2 points for the main effect in the middle. Values: ``smallest``,
    ``middle`` and ``largest`` such effect, in the unit of the metric as shown; ``test_rows``, the
    fewest. Details: (axis and levels, the effect that would be found).
    """
    sizes = []
    for effect in results.effects:
        low = effect.estimate.low
        if low is not None and effect.df > 0:
            share = (1 - results.confidence) / 2
            quantiles = [-float(special.stdtrit(effect.df, p)) for p in (share, 1 - POWER)]
            error = (effect.estimate.value - low) / quantiles[0]
            size = scale_of(effect.metric).factor * error * sum(quantiles)
            sizes.append((f"{effect.axis}: {effect.level_b} v. {effect.level_a}", size))
    if not sizes:
        return _not_asked(AuditQuestion.POWER)
    values = [size for _, size in sizes]
    return _answer(
        AuditQuestion.POWER,
        median(values) > SMALL,
        sizes,
        smallest=min(values),
        middle=median(values),
        largest=max(values),
        test_rows=min(about["num_examples"]["test"] for about in results.tasks.values()),
    )


def confounds(results: "Results") -> AuditAnswer:
    """Do matched models differ in something else, and is every model matched with another?

    Values: ``clean`` effects of ``effects``, ``unmatched`` models. Details: (what differs, in how
    many effects), then ("not matched", model).
    """
    if not results.groups:
        return _not_asked(AuditQuestion.CONFOUNDS)
    effects = [
        effect for effect in results.effects if effect.axis not in ("method", "label budget")
    ]
    also = [
        [d for d in effect.also_differs if d.name != "start" or d.a != d.b] for effect in effects
    ]
    counts = Counter(d.name for each in also for d in each)
    matched = {name for effect in effects for pair in effect.pairs for name in pair}
    alone = [group.name for group in results.groups if group.name not in matched]
    alone = alone if len(results.groups) > 1 else []
    clean = sum(not each for each in also)
    return _answer(
        AuditQuestion.CONFOUNDS,
        clean < len(effects) or bool(alone),
        [*counts.most_common(), *(("not matched", name) for name in alone)],
        clean=clean,
        effects=len(effects),
        unmatched=len(alone),
    )


def baselines(results: "Results") -> AuditAnswer:
    """Is a model ahead of the best baseline on each task and label budget?

    Values: ``beaten`` of ``places``, ``fitted`` baselines. Details: (task and label budget, how
    sure the lead is).
    """
    places = [
        (f"{answer.task}, {answer.label_budget} labels", answer.lead.certainty.value)
        for answer in results.answers
        if answer.lead
    ]
    beaten = sum(value == LeadCertainty.LEADS.value for _, value in places)
    return _answer(
        AuditQuestion.BASELINES,
        beaten < len(results.answers),
        places,
        beaten=beaten,
        places=len(results.answers),
        fitted=len(results.scores.baselines),
    )


QUESTIONS: tuple[Callable[["Results"], AuditAnswer], ...] = (
    *(shared_defaults, convergence, rates, tries, labelled_rows, read_input),
    *(test_rows, overlap, seeds, power, confounds, baselines),
)
