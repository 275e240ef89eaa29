"""What the audit asks of labels, inputs and texts."""

from itertools import product

from stages.kinds._kind import distinct_draws
from stages.reporting.comparison import contamination, inputs
from stages.reporting.comparison.audit.check import Check, span
from stages.reporting.comparison.results import Results

MOST_VALIDATION = 0.5  # of all labels that a trial uses
UNREAD = "not read"  # what the place where a label is read says of the rest of the word


def labelled_rows(results: Results) -> Check:
    question = "Are the labelled rows drawn anew for each seed?"
    params = results.params
    draws = {
        (task, str(budget)): len(
            distinct_draws(
                budget,
                results.tasks[task]["num_examples"]["train"],
                pretrain_seeds=params.pretrain_seeds,
                finetune_seeds=params.finetune.seeds,
                task=task,
            )
        )
        for task, budget in product(params.tasks, params.finetune.label_budgets)
    }
    shared = [key for key, number in draws.items() if number == 1]
    if shared:
        answer = (
            f"In {len(shared)} of {len(draws)} pairs of task and label budget all trials share one "
            "sample: intervals do not cover its drawing"
        )
    else:
        answer = f"{span([*draws.values()])} distinct samples for each task and label budget"
    if len(params.finetune.label_budgets) > 1:
        answer += "; those of one seed are nested over label budgets"
    available = {task: about["num_examples"]["train"] for task, about in results.tasks.items()}
    details = [
        f"{task}, {budget} of {available[task]:,} labels: {number:,}"
        for (task, budget), number in draws.items()
    ]
    return Check(question, f"{answer}.", bool(shared), tuple(details))


def validation_labels(results: Results) -> Check:
    question = "Are labels for validation few beside those of the label budget?"
    shares: dict[str, float] = {}
    for task, about in results.tasks.items():
        validation = about["num_examples"]["validation"]
        for budget, number in results.num_labels(task).items():
            name = f"{task}, {budget} labels and {validation:,} for validation"
            shares[name] = validation / (validation + number)
    return Check(
        question,
        f"Up to {max(shares.values()):.0%} of all labels that a trial uses are for validation.",
        max(shares.values()) > MOST_VALIDATION,
        tuple(f"{name}: {share:.0%}" for name, share in shares.items()),
    )


def cut(results: Results) -> Check:
    question = "Are texts read as a whole?"
    shares = inputs.most_cut(results)
    if not any(results.inputs.values()):
        return Check(question, "No task is encoded.", None)
    most = max(shares.values())
    return Check(
        question,
        f"At most {most:.1%} of a split's rows are cut.",
        most > inputs.NOTEWORTHY,
        tuple(f"{task}: {share:.1%}" for task, share in shares.items() if share),
    )


def read_at(results: Results) -> Check:
    question = "Has the state that a label is predicted from read what is labelled?"
    found = {
        (task, record.run): record.read_at
        for task, records in results.inputs.items()
        for record in records
    }
    if not found:
        return Check(question, "No task is encoded.", None)
    unread = {key: place for key, place in found.items() if UNREAD in place}
    return Check(
        question,
        f"{len(unread)} of {len(found)} pairs of task and run read a label where it has not.",
        bool(unread),
        tuple(f"{run} on {task}: {place}" for (task, run), place in unread.items()),
    )


def overlap(results: Results) -> Check:
    question = "Is the training text of pretraining free of test rows?"
    shares = contamination.shares(results)
    public = [name for name, run in results.params.pretrain.items() if run.is_public]
    if not (shares or public):
        return Check(question, "Nothing was pretrained.", None)
    most = max(shares.values(), default=0.0)
    answer = f"At most {most:.1%} of a task's test rows overlap it" if shares else ""
    if public:
        answer += "; that" if shares else "That"
        answer += f" of {len(public)} public checkpoints is unknown"
    high = most > contamination.NOTEWORTHY
    details = [f"{task} in {text}: {share:.1%}" for (task, text), share in shares.items() if share]
    return Check(question, f"{answer}.", high or bool(public), tuple(details))
