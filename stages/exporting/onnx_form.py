"""A model with a linear head as a file of ONNX, in float32 and with 8-bit weights."""

import copy
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from onnxruntime import InferenceSession, SessionOptions
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxscript import opset18
from torch import Tensor, nn

from stages.models._heads import LinearHead, ModelWithHead, PooledHead, gather
from stages.models.hub import Hub
from stages.text.batch import PADDING, Batch

TOLERANCE = 1e-3  # of logits, relative to the largest; a wrong operator differs by far more


class _Inputs(NamedTuple):
    """The inputs of an exported model, by their names in ``transformers``."""

    input_ids: Int[Tensor, "B T"]
    attention_mask: Int[Tensor, "B T"]
    token_type_ids: Int[Tensor, "B T"]

    @classmethod
    def of(cls, batch: Batch) -> "_Inputs":
        ids, segments = batch.input_ids, batch.segment_ids
        real = (batch.document_ids != PADDING).long()
        return cls(ids, real, torch.zeros_like(ids) if segments is None else segments)


class _Logits(nn.Module):
    """The exported module: logits [B C] of rows (a text or pair each), or [B T C] of tokens."""

    def __init__(self, model: ModelWithHead, *, has_prefix: bool) -> None:
        super().__init__()
        self.model, self.has_prefix = model, has_prefix

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        batch = Batch(
            input_ids=input_ids,
            document_ids=attention_mask,
            segment_ids=token_type_ids,
            visible=torch.ones_like(input_ids, dtype=torch.bool) if self.has_prefix else None,
            num_targets={},
            example_ids=[""],  # no row has this id, so no remembered states are read
        )
        states, head = self.model.backbone(batch), self.model.head
        if not isinstance(head, PooledHead):
            return head(states)
        if head.pooling == "last":  # ``pool`` would trace the number of rows as a constant
            last = attention_mask.sum(dim=1, keepdim=True) - 1
            return LinearHead.forward(head, gather(states, last)[:, 0])
        return head(states, attention_mask)


def save(model: ModelWithHead, batch: Batch, path: Path, *, has_prefix: bool) -> None:
    """Writes the model in a form that takes any number of rows of any length; ``batch`` is an
    example of its input with at least two rows.

    Raises ValueError if the written model gives other logits for the batch.
    """
    traced = _Logits(_traceable(model), has_prefix=has_prefix).eval()
    inputs = _Inputs.of(batch)
    any_size = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    with torch.no_grad(), _quiet():
        torch.onnx.export(
            traced,
            tuple(inputs),
            path,
            input_names=list(_Inputs._fields),
            output_names=["logits"],
            dynamic_shapes=(any_size,) * len(inputs),
            custom_translation_table={torch.ops.aten.cummax.default: _cummax},
            external_data=False,
            dynamo=True,
            verbose=False,
        )
        expected = traced(*inputs)
    error = (_run(session_of(path), inputs) - expected).abs()
    if expected.dim() == 3:
        error = error[batch.document_ids != PADDING]
    if not error.max() <= TOLERANCE * expected.abs().max():
        raise ValueError(f"ONNX computes other logits, by {error.max():.2g}; nothing was written")


@contextmanager
def _quiet() -> Iterator[None]:
    """Hides warnings of the exporter and the quantiser that do not matter here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)


def _cummax(x: Any, dim: int) -> Any:
    """Computes torch's cummax with other operators, since ONNX has none. ``x`` are positions where
    documents begin ([B T], at least 0). The second result, the indices, is not used."""
    length = opset18.Shape(x, start=1)
    ones = opset18.Expand(opset18.Constant(value_ints=[1]), opset18.Concat(length, length, axis=0))
    earlier = opset18.Unsqueeze(x, opset18.Constant(value_ints=[1])) * opset18.Trilu(ones, upper=0)
    largest = opset18.ReduceMax(earlier, opset18.Constant(value_ints=[2]), keepdims=0)
    return largest, largest


def _traceable(model: ModelWithHead) -> ModelWithHead:
    """Returns a copy of the model in which a public checkpoint takes each row as one document.
    Otherwise its code would branch on the values of a batch, which cannot be traced."""
    model = copy.deepcopy(model)
    for hub in (module for module in model.modules() if isinstance(module, Hub)):
        hub.forward = lambda batch, hub=hub: hub._states(  # type: ignore[method-assign]
            batch.input_ids, batch.document_ids, batch.segment_ids
        )
    return model


def quantize(path: Path, out: Path) -> None:
    """Writes the model in ``path`` to ``out`` with 8-bit weights in matrix products and embeddings.
    The written model also rounds the inputs of products to 8 bits.

    Weights are unsigned: products of unsigned and signed numbers overflow on processors without
    VNNI (documentation of ONNX Runtime, "Quantize ONNX models").
    """
    with _quiet():
        quantize_dynamic(path, out, per_channel=True, weight_type=QuantType.QUInt8)


def session_of(path: Path) -> InferenceSession:
    """Opens a model with as many threads as torch has."""
    options = SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3  # errors only
    return InferenceSession(path, options, providers=["CPUExecutionProvider"])


def _run(session: InferenceSession, inputs: _Inputs) -> Float[Tensor, "B *T C"]:
    feed = {name: tensor.numpy() for name, tensor in inputs._asdict().items()}
    return torch.from_numpy(session.run(None, feed)[0])


class _Session(nn.Module):
    """A stand-in for a backbone: its states are the logits of an ONNX model."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.session = session_of(path)

    def forward(self, batch: Batch) -> Float[Tensor, "B T C"]:
        logits = _run(self.session, _Inputs.of(batch))
        if logits.dim() == 3:
            return logits
        return logits[:, None].expand(-1, batch.input_ids.shape[1], -1)


def with_session(model: ModelWithHead, path: Path) -> ModelWithHead:
    """Returns a copy of ``model`` whose logits come from the ONNX model in ``path``."""
    of_file: Any = copy.deepcopy(model)
    of_file.backbone, head = _Session(path), of_file.head
    head.linear, head.dropout, head.pooling = nn.Identity(), nn.Identity(), "first"
    return of_file
