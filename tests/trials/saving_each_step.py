"""Fine-tuning that can be killed anywhere. A process of it imports this module, and no test."""

from stages import finetune
from stages.core.params import Params
from stages.training import loop


def fine_tune(params: Params, task: str) -> None:
    loop.CHECKPOINT_SECONDS = 0.0
    finetune.main(params, task)
