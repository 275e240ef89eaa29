"""The solver of probes: minimises loss plus L2 penalty over the weights of a head on frozen states,
by L-BFGS with a line search after Moré and Thuente (scipy's L-BFGS-B without bounds)."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from stages.models._backbone import Backbone
from stages.models._heads import ModelWithHead
from stages.text.batch import Batch
from stages.training.device import Device
from stages.training.flops import Counter
from stages.training.loop import Criterion, accumulate, count_targets, mean_loss

TOLERANCE = 1e-5  # for each element of the preconditioned gradient of mean loss and penalty
MAX_ITERATIONS = 500  # for each C
MEMORY = 20  # pairs of steps and gradients that L-BFGS keeps
CURVATURE = 0.1  # of a fitted logistic loss, per unit of a feature's variance
MAX_REMEMBERED = 2**30  # bytes of states that are kept
DEAD = 1e-8  # a dimension with a smaller standard deviation counts as constant


@dataclass(frozen=True)
class Solution:
    """The result for the C that was kept, and the work for every C that was tried."""

    C: float
    train_loss: float  # without the penalty
    validation_loss: float
    converged: bool  # at every C
    num_iterations: int  # of all C together
    flops: int


@dataclass(frozen=True)
class _Minimum:
    C: float
    weights: np.ndarray
    converged: bool
    num_iterations: int
    num_evaluations: int


def solve(
    model: ModelWithHead,
    criterion: Criterion,
    train: list[Batch],
    validation: list[Batch],
    *,
    inverse_strengths: Sequence[float],
    merit: Callable[[], float],
    device: Device,
) -> Solution:
    """Sets the weights of ``model`` that require a gradient to the minimum of

        sum of losses over targets + |W|^2 / (2 C)

    for the C whose model has the largest ``merit`` and, among equal merits, the lowest loss on
    ``validation``. W are the matrices of the head. The head is fitted to states standardised over
    all states that the loss of ``train`` depends on; afterwards its weights are changed to fit
    unstandardised states. A mix of layers is penalised, too (Peters et al. 2018, section 3.2): if
    one layer alone were best, the mix would have no minimum, and the solver would not end.

    Everything is computed in float64, without dropout. Each C is solved from the minimum of the
    previous one, from the strongest penalty to the weakest.
    """
    exact = replace(device, precision="float32")  # no autocast: float64 stays float64
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    has_mix = len(weights) > len([*model.head.parameters()])
    model.eval()
    minima = []
    with _in_float64(model, constant=[] if has_mix else train) as states:
        states.scale = scale = _Scale.of(_states_read(model, criterion, train, exact))
        with Counter() as of_evaluation:  # of the head and any mix; states are looked up
            accumulate(model, criterion, train, exact)
        for weight in weights:
            weight.grad = None
        for C in sorted(inverse_strengths):
            minimum = _minimum(model, criterion, train, C, scale, exact)
            loss = mean_loss(model, criterion, validation, exact)
            minima.append(((merit(), -loss), minimum))
        (_, lowest), best = max(minima, key=lambda each: each[0])
        _put(best.weights, weights)
        train_loss = mean_loss(model, criterion, train, exact)
        model.head.absorb(scale.mean, scale.std)
    return Solution(
        C=best.C,
        train_loss=train_loss,
        validation_loss=-lowest,
        converged=all(minimum.converged for _, minimum in minima),
        num_iterations=sum(minimum.num_iterations for _, minimum in minima),
        flops=of_evaluation.total * sum(minimum.num_evaluations for _, minimum in minima),
    )


def _minimum(
    model: ModelWithHead,
    criterion: Criterion,
    train: list[Batch],
    C: float,
    scale: "_Scale",
    device: Device,
) -> _Minimum:
    """Returns the minimum for C and puts it into the model, whose weights are the start."""
    # Imported here, so that a process that solves nothing does not load scipy.optimize.
    from scipy.optimize import minimize

    weights = [weight for weight in model.parameters() if weight.requires_grad]
    mix = [weight for weight in model.backbone.parameters() if weight.requires_grad]
    penalised = mix + [weight for weight in model.head.parameters() if weight.dim() >= 2]
    strength = 1 / (C * max(count_targets(train).values()))  # relative to the mean loss
    inner, outer = scale.preconditioner(strength)

    def times(factor: Tensor, values: Sequence[Tensor]) -> np.ndarray:
        """Returns all values in one array, after multiplying matrices for states by ``factor``."""
        fits = [value.dim() == 2 and value.shape[1] == len(factor) for value in values]
        parts = [v @ factor if fit else v for v, fit in zip(values, fits, strict=True)]
        return np.concatenate([part.cpu().numpy().ravel() for part in parts])

    def value_and_gradient(variables: np.ndarray) -> tuple[float, np.ndarray]:
        _put(variables, weights)
        _put(times(inner, [weight.detach() for weight in weights]), weights)
        loss = accumulate(model, criterion, train, device)
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        for weight in penalised:
            assert weight.grad is not None
            loss += strength / 2 * float(weight.detach().square().sum())
            weight.grad += strength * weight.detach()
        for weight in weights:
            weight.grad = None
        return loss, times(inner, gradients)

    limits = {"maxiter": MAX_ITERATIONS, "maxfun": 2 * MAX_ITERATIONS, "maxcor": MEMORY}
    solution = minimize(
        value_and_gradient,
        times(outer, [weight.detach() for weight in weights]),
        jac=True,
        method="L-BFGS-B",
        options={**limits, "gtol": TOLERANCE, "ftol": 0.0},
    )
    _put(solution.x, weights)
    _put(times(inner, [weight.detach() for weight in weights]), weights)
    return _Minimum(
        C=C,
        weights=times(torch.eye(len(inner)).to(inner), [weight.detach() for weight in weights]),
        converged=bool(np.abs(solution.jac).max() <= TOLERANCE),
        num_iterations=int(solution.nit),
        num_evaluations=int(solution.nfev),
    )


@dataclass(frozen=True)
class _Scale:
    """Statistics of the states that a loss depends on: the mean and the standard deviation of each
    dimension, and the eigenvectors and eigenvalues of their correlations."""

    mean: Float[Tensor, " D"]
    std: Float[Tensor, " D"]
    vectors: Float[Tensor, "D D"]
    values: Float[Tensor, " D"]

    @staticmethod
    def of(states: Float[Tensor, "N D"]) -> "_Scale":
        """Returns the statistics of states; a constant dimension gets a standard deviation of 1."""
        mean, std = states.mean(dim=0), states.std(dim=0, correction=0)
        std = torch.where(std < DEAD, 1.0, std)
        states = (states - mean) / std
        values, vectors = torch.linalg.eigh(states.T @ states / len(states))
        return _Scale(mean, std, vectors, values.clamp(min=0.0))

    def preconditioner(self, strength: float) -> tuple[Float[Tensor, "D D"], Float[Tensor, "D D"]]:
        """Returns a matrix that makes the loss about equally curved in all directions, and its
        inverse. The matrix approximates the root of the inverse Hessian of a logistic regression
        with this penalty."""
        steep = (CURVATURE * self.values + strength).sqrt()
        return self.vectors / steep @ self.vectors.T, self.vectors * steep @ self.vectors.T


@contextmanager
def _in_float64(model: ModelWithHead, *, constant: Sequence[Batch]) -> Iterator["_States"]:
    """A context in which the states and all weights that require a gradient are in float64."""
    backbone, weights = model.backbone, [w for w in model.parameters() if w.requires_grad]
    states = _States(backbone, constant)
    for weight in weights:
        weight.data = weight.data.double()
    model.backbone = states  # type: ignore[assignment]
    try:
        yield states
    finally:
        model.backbone = backbone
        for weight in weights:
            weight.data = weight.data.float()


class _States(nn.Module):
    """Computes the states of a backbone in float64, standardised if ``scale`` is set. Standardised
    states of ``constant`` batches are kept, as far as MAX_REMEMBERED allows."""

    def __init__(self, backbone: Backbone, constant: Sequence[Batch] = ()) -> None:
        super().__init__()
        self.backbone = backbone
        self.scale: _Scale | None = None
        self._constant = {tuple(batch.example_ids) for batch in constant}
        self._known = dict[tuple[str, ...], Tensor]()
        self._room = MAX_REMEMBERED

    def forward(self, batch: Batch) -> Float[Tensor, "B T D"]:
        key = tuple(batch.example_ids)
        if key in self._known:
            return self._known[key]
        states = self.backbone(batch).double()
        if self.scale is not None:
            states = (states - self.scale.mean) / self.scale.std
            if key in self._constant and self._room > states.nbytes:
                self._known[key], self._room = states, self._room - states.nbytes
        return states


def _states_read(
    model: ModelWithHead, criterion: Criterion, train: list[Batch], device: Device
) -> Float[Tensor, "N D"]:
    """Returns the states that the loss depends on, as the head reads them (pooled, if it pools)."""
    read, given = list[Tensor](), list[Tensor]()

    def keep(layer: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor]:
        given.append(inputs[0].detach().requires_grad_())
        return (given[-1],)

    handle = model.head.reader.register_forward_pre_hook(keep)
    try:
        for batch in train:
            given.clear()
            terms = criterion.loss(model, batch.to(device.torch))
            loss = torch.stack([weight * total for weight, total in terms.values()]).sum()
            for states, gradient in zip(given, torch.autograd.grad(loss, given), strict=True):
                read.append(states.detach()[gradient.abs().amax(dim=-1) > 0])
    finally:
        handle.remove()
    return torch.cat(read)


def _put(flat: np.ndarray, weights: Sequence[Tensor]) -> None:
    parts = np.split(flat, np.cumsum([weight.numel() for weight in weights])[:-1])
    for weight, part in zip(weights, parts, strict=True):
        weight.data.copy_(torch.from_numpy(part).view(weight.shape))
