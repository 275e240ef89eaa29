"""What a run reads of a task's rows: how much of them was cut, and where labels are read."""

from collections.abc import Iterable, Iterator, Sequence

from stages.core.artifacts import read_jsonl
from stages.core.params import Params
from stages.evaluation.records import InputRecord
from stages.kinds._kind import SPLITS, Split, most_rows
from stages.training.finetuning import Encoded
from stages.trials.runner import method_of
from stages.trials.setup import TrialSetup


def input_records(
    params: Params, run_key: str, task_key: str, methods: Iterable[str]
) -> list[InputRecord]:
    """A row for each split and each form in which the methods of a run read its texts, and one of
    test for each method that prompts."""
    methods = [*methods]
    prompted = [key for key in methods if method_of(params, key).prompts]
    forms = dict[bool, list[str]]()  # the methods that read a task as text, and the others
    for key in methods:
        if key not in prompted:
            forms.setdefault(params.finetune.methods[key].text_to_text, []).append(key)
    found = [
        record
        for text_to_text, some in sorted(forms.items())
        for record in _records(params, run_key, task_key, some, text_to_text=text_to_text)
    ]
    return [*found, *(_of_prompt(params, run_key, task_key, key) for key in prompted)]


def _records(
    params: Params, run_key: str, task_key: str, methods: Iterable[str], *, text_to_text: bool
) -> Iterator[InputRecord]:
    setup = TrialSetup(
        run_key, task_key, max_tokens=params.finetune.max_tokens, text_to_text=text_to_text
    )
    budgets = params.finetune.label_budgets
    variants = [each for key in methods for each in setup.variants(params.finetune, key)]
    read_at = " or ".join(dict.fromkeys(setup.of(each).task.read_at for each in variants))
    for split in SPLITS:
        rows = read_jsonl(setup.examples / f"{split}.jsonl")
        if split == "train":
            rows = rows[: most_rows(budgets, len(rows), task=task_key)]
        yield input_record(run_key, split, read_at, setup.task.encode(rows))


def _of_prompt(params: Params, run_key: str, task_key: str, method: str) -> InputRecord:
    """Of the prompts of the first seed and the largest label budget. What is cut are shots, and
    then the text."""
    setup = TrialSetup(run_key, task_key, max_tokens=params.finetune.max_tokens)
    rows = {split: read_jsonl(setup.examples / f"{split}.jsonl") for split in SPLITS}
    most = most_rows(params.finetune.label_budgets, len(rows["train"]), task=task_key)
    seed = params.finetune.seeds[0]
    predictor = setup.predictor(
        method_of(params, method),
        setup.labelled(rows["train"], str(most), seed=seed),
        seed=seed,
        where=f"finetune.methods.{method}.method",
    )
    return input_record(run_key, "test", f"prompt of {method}", predictor.encode(rows["test"]))


def input_record(run: str, split: Split, read_at: str, examples: Sequence[Encoded]) -> InputRecord:
    """What of a split's rows was cut, from its examples."""
    tokens_cut = sum(example.num_cut for example in examples)
    return InputRecord(
        run=run,
        split=split,
        read_at=read_at,
        rows=len({example.id for example in examples}),
        rows_cut=len({example.id for example in examples if example.num_cut}),
        tokens=sum(len(example.tokens) for example in examples) + tokens_cut,
        tokens_cut=tokens_cut,
    )
