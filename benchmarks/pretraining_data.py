"""What a study's reference run would be pretrained on, with another objective and another model:
for benchmarks, in the folder of a finished study."""

from collections.abc import Mapping

from stages.core import paths
from stages.core.params import Params, Run
from stages.models._backbone import MODELS, Backbone
from stages.objectives._objective import Objective
from stages.text.corpus import EncodedCorpus
from stages.text.packing import Packing
from stages.text.tokenizer import TaskTokenizer
from stages.training.pretraining import PretrainingData, built

ARCHITECTURES = {"causal": "decoder", "mlm": "encoder", "span_corruption": "encoder_decoder"}


def pretraining(
    params: Params,
    name: str,
    sizes: Mapping[str, int],
    settings: Mapping[str, float] | None = None,
    *,
    rows: int,
    length: int,
) -> tuple[Backbone, Objective, TaskTokenizer, PretrainingData]:
    """For an objective of ARCHITECTURES with ``settings``: a model without weights, and steps of
    ``rows`` of ``length`` tokens of the reference run's corpus."""
    reference = params.pretrain[params.budget.reference]
    run: Run = reference.model_copy(
        update={
            "model": {"name": ARCHITECTURES[name], **sizes},
            "objective": {"name": name, **(settings or {})},
            "training": reference.training.model_copy(update={"max_tokens": length}),
        }
    )
    kind = MODELS.find(ARCHITECTURES[name], where="model")
    tokenizer = kind.tokenizer_of(run.model, paths.TOKENIZERS / run.tokenizer)
    backbone, objective = built(run, tokenizer, where="benchmark")
    corpus = EncodedCorpus.load(paths.ENCODED / run.corpus / run.tokenizer / "train")
    packing = Packing(corpus, length, seed=1)
    data = PretrainingData(packing, objective, batch_rows=rows, micro_batch_rows=rows, seed=1)
    return backbone, objective, tokenizer, data
