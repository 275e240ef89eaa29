"""What is known of a checkpoint and a task before any training: how much of the task's texts the
checkpoint reads, and estimates of how well it would do, from the frozen states that a probe reads.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from threadpoolctl import threadpool_limits

from stages.core.keys import CheckpointKey, TrialKey
from stages.core.params import Compute, Finetune
from stages.core.seeding import stream
from stages.evaluation.records import InputRecord
from stages.evaluation.transferability import ESTIMATES, EstimateRecord, h_score, logme, one_hot
from stages.methods._method import PromptMethod
from stages.tasks._labelled_rows import most_rows
from stages.tasks._task import SPLITS, Example
from stages.text.batch import IGNORE_INDEX
from stages.training.device import resolve
from stages.training.flops import counting
from stages.trials.prediction import FrozenStates
from stages.trials.runner import method_of
from stages.trials.setup import TrialSetup

TASKS = ("classification", "tagging", "regression")  # each label is predicted from one state
MAX_ROWS = 1000  # more rows would take more than seconds and hardly change the estimates
MAX_STATES = 5000  # for tasks whose rows have many states (one for each word)


def input_records(
    finetune: Finetune, checkpoint: CheckpointKey, task: str, methods: Iterable[str]
) -> list[InputRecord]:
    """Returns a record for each split and form (text-to-text or not) in which ``methods`` read
    texts. A prompt method has one record, of the test prompts of the first fine-tuning seed and the
    largest label budget; in a prompt, shots are cut first, then the text."""
    seed, records, forms = finetune.seeds[0], list[InputRecord](), set[bool]()
    for name in methods:
        method, text_to_text = method_of(finetune, name), finetune.methods[name].text_to_text
        if text_to_text in forms and not isinstance(method, PromptMethod):
            continue
        tokens = finetune.max_tokens
        setup = TrialSetup(checkpoint, task, max_tokens=tokens, text_to_text=text_to_text)
        rows = {split: setup.rows(split, seed=seed) for split in SPLITS}
        most = most_rows(finetune.label_budgets, len(rows["train"]), task=task)
        if isinstance(method, PromptMethod):
            key = TrialKey(*checkpoint, task, name, str(most), seed)
            prompts = setup.prompts(method, key, rows["train"])
            read_at, encoded = f"prompt of {name}", {"test": prompts.encode(rows["test"])}
        else:
            forms.add(text_to_text)
            rows["train"] = rows["train"][:most]
            read_at = setup.task.read_at
            encoded = {split: setup.task.encode(of_split) for split, of_split in rows.items()}
        for split, examples in encoded.items():
            tokens_cut = sum(example.num_cut for example in examples)
            records.append(
                InputRecord(
                    **checkpoint._asdict(),
                    split=split,
                    read_at=read_at,
                    rows=len({example.id for example in examples}),
                    rows_cut=len({example.id for example in examples if example.num_cut}),
                    tokens=sum(len(example.tokens) for example in examples) + tokens_cut,
                    tokens_cut=tokens_cut,
                )
            )
    return records


def estimated(
    finetune: Finetune, compute: Compute, checkpoint: CheckpointKey, task: str
) -> list[EstimateRecord]:
    """Returns the estimates of a checkpoint on a task.

    All checkpoints have the same labelled rows: as many as the largest label budget, but at most
    ``MAX_ROWS``. They are drawn as for a trial whose pretraining and fine-tuning seeds are both
    the first of ``finetune.seeds``.
    """
    setup, seed = TrialSetup(checkpoint, task, max_tokens=finetune.max_tokens), finetune.seeds[0]
    device = replace(resolve(compute, threads=compute.trial_threads), precision="float32")
    values, num_rows, num_states, flops = dict[str, float](), 0, 0, 0
    reason = "a label is no class or number of one state"
    if setup.task.kind.name in TASKS and not setup.task.scores_text:
        train = setup.rows("train", seed=seed)
        most = min(most_rows(finetune.label_budgets, len(train), task=task), MAX_ROWS)
        key = TrialKey(checkpoint.model, seed, task, "", str(most), seed)
        with threadpool_limits(1):  # numpy's sums depend on the number of threads
            examples = _few(setup.task.encode(setup.labelled(key, train)), seed)
            frozen, model = FrozenStates(setup.task, device), setup.headed(seed=seed)
            with counting() as counter:
                frozen.compute(model.to(device.torch), examples)
            states, labels, _ = frozen.labelled(examples)
            if labels.dtype.kind == "f":
                values = {"logme": logme(states, labels[:, None])}
                reason = "defined for classes, not for numbers"
            elif len(np.unique(labels)) < 2:
                reason = "the labelled rows have fewer than two classes"
            else:
                values["h_score"] = h_score(states, labels)
                values["logme"] = logme(states, one_hot(labels))
        num_rows, num_states = len({each.id for each in examples}), len(labels)
        flops = counter.flops
    return [
        EstimateRecord(
            **checkpoint._asdict(),
            estimate=estimate,
            value=values.get(estimate),
            num_rows=num_rows,
            num_states=num_states,
            flops=flops,
            reason="" if estimate in values else reason,
        )
        for estimate in ESTIMATES
    ]


def _few(examples: Sequence[Example], seed: int) -> list[Example]:
    """Returns examples chosen at random, by ``seed``, that together have at most ``MAX_STATES``
    labels; at least one example."""
    order = stream(seed, "estimated rows").permutation(len(examples))
    sizes = np.array([int((examples[i].labels != IGNORE_INDEX).sum()) for i in order])
    within = max(int((sizes.cumsum() <= MAX_STATES).sum()), 1)
    return [examples[i] for i in sorted(order[:within])]
