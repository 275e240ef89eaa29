"""What was not tried: what it may change, what it takes and how to try it."""

from collections.abc import Sequence
from dataclasses import dataclass

from stages.findings.not_tried import NotTried, Untried
from stages.reporting.formats import about

PLAN = "`make plan` says what an edit of `params.yaml` takes, before anything runs"

USUAL_TRAINING = "training: {num_epochs: 4, batch_examples: 16, lr: 1e-3}"


@dataclass(frozen=True)
class Gap:
    """Something that was not tried, in words."""

    name: str
    sentence: str
    takes: str  # on the machine of the study; "" if unknown


def gaps(omitted: Sequence[NotTried]) -> list[Gap]:
    return [Gap(each.what.value, _sentence(each), _takes(each)) for each in omitted]


def _sentence(omitted: NotTried) -> str:
    tried, setting = (", ".join(values) for values in (omitted.tried, omitted.setting))
    match omitted.what:
        case Untried.PUBLISHED:
            return (
                "The study has no published checkpoint. One that read far more text may be ahead "
                "of everything that is pretrained here. To try one, take over the lines marked "
                "with (*) in `studies/default.yaml` (English, 84 MB), or name one of the hub: "
                "`pretrain.runs.bert.model: {name: hub, path: google-bert/bert-base-uncased}`."
            )
        case Untried.LABELS:
            return (
                f"All trials have {tried} labels; with others another choice may be ahead. To try "
                f"some: `finetune.label_budgets: [{setting}]`."
            )
        case Untried.SEEDS:
            return (
                f"A run has as few as {tried} of them, so intervals are wide or about these "
                f"checkpoints alone. To try more: `pretrain.seeds: [{setting}]`."
            )
        case Untried.METHODS:
            training = "" if setting == "linear_probe" else USUAL_TRAINING
            return (
                f"All runs are adapted by `{tried}` alone. To try another one: "
                f"`finetune.methods.{setting}: {{{training}}}`."
            )


def _takes(omitted: NotTried) -> str:
    if omitted.seconds is None:
        return ""
    bound = "at most about" if omitted.is_upper_bound else "about"
    return f"That takes {bound} {about(omitted.seconds)} more on this machine."
