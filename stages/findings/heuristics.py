"""Heuristics that rank checkpoints without their scores on a task: size, FLOPs and loss of
pretraining, and the ranks on other tasks. Estimates are compared with them.

A heuristic gives a number for each checkpoint. Larger is expected to be better.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from scipy.stats import rankdata

from stages.core.keys import RunKey
from stages.evaluation.records import ScoredTrial
from stages.findings.groups import Group
from stages.findings.pretraining_progress import Progress, comparable, validation_losses

NUM_PARAMS = "num_params"
PRETRAIN_FLOPS = "pretrain_flops"
MEAN_RANK = "mean_rank"
VALIDATION_LOSS = "validation_loss"
HEURISTICS = (NUM_PARAMS, PRETRAIN_FLOPS, VALIDATION_LOSS, MEAN_RANK)


def sizes(trials: Mapping[RunKey, Sequence[ScoredTrial]]) -> dict[RunKey, float]:
    """Returns the number of parameters that the trials of each checkpoint use."""
    return {key: of_key[0].num_params for key, of_key in trials.items()}


def pretraining_flops(trials: Mapping[RunKey, Sequence[ScoredTrial]]) -> dict[RunKey, float]:
    """Returns the FLOPs of pretraining each checkpoint with its parents and teachers, 0 from
    scratch. Public checkpoints, whose FLOPs are unknown, are left out."""
    return {
        key: flops
        for key, of_key in trials.items()
        if (flops := of_key[0].lineage_flops) is not None
    }


def mean_ranks(merits: Sequence[Mapping[RunKey, float]]) -> dict[RunKey, float]:
    """Returns the mean over tasks of the rank of each checkpoint that all tasks have, 1 for the
    worst; ties share their mean rank. ``merits`` has the scores of one task each, larger is better.
    """
    shared = [key for key in merits[0] if all(key in of_task for of_task in merits)]
    ranks = [rankdata([of_task[key] for key in shared]) for of_task in merits]
    return dict(zip(shared, np.mean(ranks, axis=0).tolist(), strict=True))


def negative_losses(
    all_groups: Sequence[Group], progress: Mapping[RunKey, Progress]
) -> Iterator[dict[RunKey, float]]:
    """Yields minus the last validation loss of pretraining, in nats, of each checkpoint, once for
    every set of at least two runs whose losses can be compared."""
    for members in comparable(all_groups, progress):
        if len(members) > 1:
            yield {
                checkpoint: -validation_losses(progress[checkpoint])[-1]
                for group in members
                for checkpoint in group.checkpoints
            }
