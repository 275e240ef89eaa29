"""Records of how much of a task's rows a checkpoint reads, and which states predict labels."""

from collections.abc import Iterable, Sequence

from stages.core.keys import RunKey
from stages.core.params import Finetune
from stages.evaluation.records import InputRecord
from stages.tasks._kind import SPLITS, Split
from stages.tasks._labelled_rows import most_rows
from stages.training.finetuning import Encoded
from stages.trials.runner import method_of
from stages.trials.setup import TrialSetup


def input_records(
    finetune: Finetune, checkpoint: RunKey, task: str, methods: Iterable[str]
) -> list[InputRecord]:
    """Returns a record for each split and each form (text-to-text or not) in which ``methods`` read
    texts, and a record of the test split for each prompt method: of the prompts of the first
    fine-tuning seed and the largest label budget. In a prompt, shots are cut first, and then the
    text."""
    seed, records, forms = finetune.seeds[0], list[InputRecord](), set[bool]()
    for key in methods:
        method, text_to_text = method_of(finetune, key), finetune.methods[key].text_to_text
        if text_to_text in forms and not method.prompts:
            continue
        setup = TrialSetup(
            checkpoint, task, max_tokens=finetune.max_tokens, text_to_text=text_to_text
        )
        rows = {split: setup.rows(split, seed=seed) for split in SPLITS}
        most = most_rows(finetune.label_budgets, len(rows["train"]), task=task)
        if method.prompts:
            predictor = setup.predictor(
                method,
                setup.labelled(rows["train"], str(most), seed=seed),
                seed=seed,
                where=f"finetune.methods.{key}.method",
            )
            examples = predictor.encode(rows["test"])
            records.append(input_record(checkpoint, "test", f"prompt of {key}", examples))
            continue
        forms.add(text_to_text)
        rows["train"] = rows["train"][:most]
        records += [
            input_record(checkpoint, split, setup.task.read_at, setup.task.encode(rows[split]))
            for split in SPLITS
        ]
    return records


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
        tokens=sum(len(each.tokens) for each in examples) + tokens_cut,
        tokens_cut=tokens_cut,
    )
