"""A measure of how well a checkpoint predicts a task's texts with its pretraining objective."""

import math

import torch

from stages.core.artifacts import read_jsonl
from stages.core.params import Run
from stages.evaluation.records import TextBitsRecord
from stages.models._heads import ModelWithHead
from stages.text.corpus import encode
from stages.text.packing import Packing
from stages.training.device import Device
from stages.training.loop import count_targets, mean_loss
from stages.training.pretraining import objective_for, validation_batches
from stages.trials.setup import TrialSetup

BATCH_ROWS = 16


@torch.no_grad()
def text_bits(setup: TrialSetup, run: Run, device: Device) -> TextBitsRecord | None:
    """Returns the validation loss of a checkpoint's objective on the inputs of the task's test
    rows, also as bits per byte. The inputs are packed into full rows, at most as many as for
    validation on a corpus.

    Returns None for a run that has learnt no objective and for a public checkpoint. Also returns
    None if the objective needs more than the checkpoint holds (a teacher, a head), if it has
    several terms or nothing to predict in these texts, or if the tokenizer does not know all
    characters of the texts, because unknown tokens would take too few bits.
    """
    if run.is_public:
        return None  # the layers that compute the logits of an encoder are not stored
    backbone = setup.outline()
    where = run.where(setup.checkpoint.run)
    objective = objective_for(run, setup.tokenizer, backbone, where=where).for_validation()
    has_head = any(True for _ in objective.head(backbone).parameters())
    if not objective.trains or objective.has_teacher or has_head:
        return None
    rows = read_jsonl(setup.examples / "test.jsonl")
    texts = [text for row in rows for text in setup.task.kind.texts(row)]
    encoded = encode([[text] for text in texts], setup.tokenizer)
    if setup.tokenizer.unk_id in encoded.tokens:
        return None
    length = min(run.training.max_tokens, len(encoded.tokens))
    batches = validation_batches(Packing(encoded, length, seed=0), objective, batch_rows=BATCH_ROWS)
    targets = count_targets(batches)
    if len(targets) > 1 or not any(targets.values()):
        return None
    model = ModelWithHead(setup.backbone(seed=0), objective.head(backbone)).to(device.torch)
    loss = mean_loss(model, objective, batches, device)
    num_bytes = sum(len(text.encode()) for text in texts)
    return TextBitsRecord(
        **setup.checkpoint._asdict(),
        loss=loss,
        bits_per_byte=loss / math.log(2) * len(encoded.tokens) / num_bytes,
        num_targets=sum(targets.values()),
    )
