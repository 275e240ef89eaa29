"""Records of how much of a task's rows a checkpoint reads, and which states predict labels."""

from collections.abc import Iterable, Iterator, Sequence

from stages.core.keys import RunKey
from stages.core.params import Finetune
from stages.evaluation.records import InputRecord
from stages.kinds._kind import SPLITS, Split, most_rows
from stages.training.finetuning import Encoded
from stages.trials.runner import method_of
from stages.trials.setup import TrialSetup


def input_records(
    finetune: Finetune, checkpoint: RunKey, task: str, methods: Iterable[str]
) -> list[InputRecord]:
    """Returns a record for each split and each form (text-to-text or not) in which ``methods`` read
    texts, and a record of the test split for each prompt method."""
    methods = [*methods]
    prompted = [key for key in methods if method_of(finetune, key).prompts]
    forms = dict[bool, list[str]]()  # the text-to-text methods, and the other methods
    for key in methods:
        if key not in prompted:
            forms.setdefault(finetune.methods[key].text_to_text, []).append(key)
    of_texts = [
        record
        for text_to_text, some in sorted(forms.items())
        for record in _records(finetune, checkpoint, task, some, text_to_text=text_to_text)
    ]
    return [*of_texts, *(_of_prompt(finetune, checkpoint, task, key) for key in prompted)]


def _records(
    finetune: Finetune, checkpoint: RunKey, task: str, methods: Iterable[str], *, text_to_text: bool
) -> Iterator[InputRecord]:
    setup = TrialSetup(checkpoint, task, max_tokens=finetune.max_tokens, text_to_text=text_to_text)
    budgets = finetune.label_budgets
    variants = [variant for key in methods for variant in setup.variants(finetune, key)]
    read_at = " or ".join(dict.fromkeys(setup.of(variant).task.read_at for variant in variants))
    for split in SPLITS:
        rows = setup.rows(split, seed=finetune.seeds[0])
        if split == "train":
            rows = rows[: most_rows(budgets, len(rows), task=task)]
        yield input_record(checkpoint, split, read_at, setup.task.encode(rows))


def _of_prompt(finetune: Finetune, checkpoint: RunKey, task: str, method: str) -> InputRecord:
    """Returns the record of the prompts of the first fine-tuning seed and the largest label budget.
    In a prompt, shots are cut first, and then the text."""
    setup = TrialSetup(checkpoint, task, max_tokens=finetune.max_tokens)
    seed = finetune.seeds[0]
    rows = {split: setup.rows(split, seed=seed) for split in SPLITS}
    most = most_rows(finetune.label_budgets, len(rows["train"]), task=task)
    predictor = setup.predictor(
        method_of(finetune, method),
        setup.labelled(rows["train"], str(most), seed=seed),
        seed=seed,
        where=f"finetune.methods.{method}.method",
    )
    return input_record(checkpoint, "test", f"prompt of {method}", predictor.encode(rows["test"]))


def input_record(
    checkpoint: RunKey, split: Split, read_at: str, examples: Sequence[Encoded]
) -> InputRecord:
    """Returns the record of how many rows and tokens are cut in a split's encoded ``examples``."""
    tokens_cut = sum(example.num_cut for example in examples)
    return InputRecord(
        **checkpoint._asdict(),
        split=split,
        read_at=read_at,
        rows=len({example.id for example in examples}),
        rows_cut=len({example.id for example in examples if example.num_cut}),
        tokens=sum(len(each.tokens) - each.num_repeated for each in examples) + tokens_cut,
        tokens_cut=tokens_cut,
    )
