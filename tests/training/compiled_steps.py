"""Compiles a training step of each objective with torch's compiler, and prints statistics as JSON.
It runs in a process of its own, because the type checks of tests cannot be compiled.

    python -m tests.training.compiled_steps

Graphs are run as captured, without the compiler's last part, which makes kernels. What was compiled
for one model is kept for the next, as in a stage that trains several.
"""

import json
import sys
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._dynamo.utils import counters
from torch._inductor import config, scheduler
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.graph import GraphLowering
from torch._inductor.ir import MultiOutput
from torch.fx import GraphModule

import tests.flash_reference  # noqa: F401 (registers its kernels)
from stages.models._attention import Attention
from stages.models._heads import ModelWithHead
from stages.objectives._objective import Objective
from stages.objectives.distillation import Distillation
from stages.text.batch import ABSENT, Batch, starts_of
from tests.training.trained_by_ranks import built, cases


def step(
    model: ModelWithHead, objective: Objective, batch: Batch
) -> tuple[Tensor, list[Tensor | None]]:
    """The loss of a batch and the gradients of all weights."""
    terms = model(objective.loss, batch).values()
    loss = torch.stack([weight * total for weight, total in terms]).sum()
    model.zero_grad()
    loss.backward()
    return loss.detach(), [weight.grad for weight in model.parameters()]


def with_more_documents(batch: Batch) -> Batch:
    """The batch, padded to the sizes of a batch with more documents and more places of labels."""
    empty: dict[str, Any] = {
        name: F.pad(starts, (0, len(starts)), value=batch.input_ids.numel())
        for name in ("document_starts", "decoder_document_starts", "prefix_starts")
        if (starts := getattr(batch, name)) is not None
    }
    if batch.label_places is not None:
        empty["label_places"] = F.pad(batch.label_places, (0, 3), value=ABSENT)
    more = replace(batch, **empty)
    more.declare_changing_sizes()
    return more


def compiled(name: str, architecture: str, *, as_on_gpu: bool = False) -> dict[str, Any]:
    """Statistics of the graphs of a compiled step, and its difference from an uncompiled step. With
    ``as_on_gpu``, attention is computed within documents, in bfloat16."""
    counters.clear()
    objective, model, data = built(name, architecture, dropout=0.0)
    batch, *_ = data.micro_batches(0)
    if as_on_gpu:
        batch = replace(batch, **starts_of(batch))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return measured(model, objective, batch)
    return measured(model, objective, batch)


def measured(model: ModelWithHead, objective: Objective, batch: Batch) -> dict[str, Any]:
    """Statistics of the graphs of a step on a batch, and its difference from an uncompiled step."""
    loss, gradients = step(model.train(), objective, batch)
    batch.declare_changing_sizes()
    graphs: list[GraphModule] = []

    def backend(graph: GraphModule, inputs: list[Any]) -> Any:
        graphs.append(graph)
        return graph.forward

    model.compile(backend=backend)
    compiled_loss, compiled_gradients = step(model, objective, batch)
    num_graphs = len(graphs)
    step(model, objective, with_more_documents(batch))
    model.backbone.eval()
    with torch.no_grad():
        model.backbone(batch)
    operations = [
        getattr(node.target, "__name__", "")
        for graph in graphs[:num_graphs]
        for node in graph.graph.nodes
    ]
    teacher = [objective.teacher] if isinstance(objective, Distillation) else []
    layers = [layer for part in (model, *teacher) for layer in part.modules()]
    pairs = zip(gradients, compiled_gradients, strict=True)
    return {
        "graphs": num_graphs,
        "breaks": len(counters["graph_break"]),
        "attentions": operations.count("scaled_dot_product_attention"),
        "attentions within documents": operations.count("_varlen_attn"),
        "layers": sum(isinstance(layer, Attention) for layer in layers),
        "losses": operations.count("cross_entropy"),
        "graphs for more": len(graphs) - num_graphs,
        "difference": max(
            float((one - other).abs().max() / one.abs().max().clamp(min=1e-6))
            for one, other in [(loss, compiled_loss), *pairs]
            if one is not None and other is not None
        ),
        "same weights": all((one is None) == (other is None) for one, other in pairs),
    }


def kernels_of_step(num_layers: int) -> int:
    """The number of kernels of a decoder's compiled loss and its gradients, without the kernels
    that sum and clip gradients and update weights. Operations are fused as for a CPU; for CUDA
    others may be fused. No kernel is compiled, so the computed loss and gradients are wrong."""
    torch._dynamo.reset()
    objective, model, data = built("causal", "decoder", dropout=0.0, num_layers=num_layers)
    batch, *_ = data.micro_batches(0)
    batch = replace(batch, **starts_of(batch))
    numbers = list[int]()

    def codegen(graph: GraphLowering) -> Any:
        code = with_codegen(graph)
        nodes = graph.scheduler.nodes
        without = (scheduler.NopKernelSchedulerNode, scheduler.ExternKernelSchedulerNode)
        products = [
            node
            for node in nodes
            if isinstance(node, scheduler.ExternKernelSchedulerNode)
            and not isinstance(node.node, MultiOutput)
        ]
        numbers.append(len(products) + sum(not isinstance(node, without) for node in nodes))
        return code

    with_codegen = GraphLowering.codegen
    with (
        patch.object(GraphLowering, "codegen", codegen),
        patch.object(AsyncCompile, "cpp_pybinding", lambda *_, **__: lambda *_: None),
        config.patch(fx_graph_cache=False, size_asserts=False),
        torch.autocast("cpu", dtype=torch.bfloat16),
    ):
        model.compile()
        step(model.train(), objective, batch)
    forward, backward = numbers
    return forward + backward


if __name__ == "__main__":
    torch.set_num_threads(1)
    results: dict[str, Any] = {f"{name} {of}": compiled(name, of) for name, of in cases()}
    for name, of in (("mlm", "encoder"), ("causal", "decoder"), ("prefix_lm", "decoder")):
        results[f"{name} {of}, as on a GPU"] = compiled(name, of, as_on_gpu=True)
    results["kernels"] = [kernels_of_step(number) for number in (2, 3)]
    sys.stdout.write(json.dumps(results, indent=1))
