"""The LSTMs of a bidirectional language model (ELMo; Peters et al. 2018, sections 3.1 and 3.2).

Two stacks share a token embedding: one reads each document forwards and one backwards, and neither
has access to the other's states.
"""

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from stages.models._backbone import Backbone
from stages.models._heads import embedding_table
from stages.text.batch import PADDING, Batch

FILE = "model.safetensors"


class BiLSTM(Backbone):
    """A backbone whose token states are a learnt mix of its layers (``_ScalarMix``): h_0 is the
    token's embedding, concatenated with itself, and h_j the concatenation of the forward and the
    backward state of layer j.

    The embedding and each direction have the width d_model / 2. A direction has ``d_cell`` cells
    per layer, by default 4 d_model (ELMo has 4096, projected to 512; section 3.4); the output of
    more than d_model / 2 cells is projected down to that width. Layers after the first have a
    residual connection. The mix is initially the mean of the layers; only tasks train it.

    Unlike in ELMo, tokens are subwords with an embedding, which is also the output embedding, not
    words with character convolutions; states are not clipped, and do not carry over from one row to
    the next.

    Raises ValueError for incompatible widths.
    """

    architecture = "bilstm"
    sizes = ("num_layers", "d_cell")

    def __init__(
        self,
        vocab_size: int,
        *,
        d_model: int,
        num_layers: int = 2,
        d_cell: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        d_cell, width = d_cell or 4 * d_model, d_model // 2
        if d_model < 2 or d_model % 2 or num_layers < 1 or d_cell < width:
            raise ValueError(
                f"d_model {d_model} must be even, half for each direction, num_layers {num_layers} "
                f"at least 1, and d_cell {d_cell} at least d_model / 2"
            )
        self.vocab_size, self.num_layers = vocab_size, num_layers
        self.d_model, self.d_cell = d_model, d_cell
        self.embedding = embedding_table(vocab_size, width)
        self.forward_lm, self.backward_lm = (
            nn.ModuleList(
                nn.LSTM(width, d_cell, proj_size=width if d_cell > width else 0)
                for _ in range(num_layers)
            )
            for _ in range(2)
        )
        self.mix = _ScalarMix(num_layers + 1)
        self.output_bias: nn.Parameter | None = nn.Parameter(torch.zeros(vocab_size))
        self.dropout = nn.Dropout(dropout)

    @property
    def design(self) -> str:
        shape = (self.vocab_size, self.d_model, self.num_layers, self.d_cell)
        return f"bilstm, {shape}, {self.dropout.p}"

    @property
    def blocks(self) -> list[nn.Module]:
        """The two LSTMs of each layer."""
        pairs = zip(self.forward_lm, self.backward_lm, strict=True)
        return [nn.ModuleList(pair) for pair in pairs]

    @property
    def token_embedding(self) -> nn.Module:
        return self.embedding

    def forward(self, batch: Batch) -> Float[Tensor, "B T D"]:
        return self.mix(self.layers(batch))

    def layers(self, batch: Batch) -> Float[Tensor, "J B T D"]:
        """Returns all J = num_layers + 1 layers h_j of each token. At padding, h_1 and later are 0.

        Dropout applies to the input of a layer, and therefore also to its residual, as in the
        authors' code.
        """
        order, batch_sizes = _reading_order(batch)
        x = self.embedding(batch.input_ids)
        layers = [torch.cat([x, x], dim=-1)]
        states = x.flatten(0, 1)[order]
        for number, pair in enumerate(self.blocks):
            states = self.dropout(states)
            change = _run([*pair.children()], states, batch_sizes)
            states = states + change if number else change
            rows = [
                torch.zeros_like(x).flatten(0, 1).index_copy(0, tokens, of_tokens.to(x.dtype))
                for tokens, of_tokens in zip(order, states, strict=True)
            ]
            layers.append(torch.cat(rows, dim=-1).view_as(layers[0]))
        return torch.stack(layers)

    def directions(self, batch: Batch) -> tuple[Float[Tensor, "B T d"], Float[Tensor, "B T d"]]:
        """The last layer's forward and backward states (width d = d_model / 2), which predict the
        next and the previous token."""
        forward, backward = self.dropout(self.layers(batch)[-1]).chunk(2, dim=-1)
        return forward, backward

    def compile(self, *args: object, **kwargs: object) -> None:
        """Compiles nothing: batches differ in their number of steps, and each number would be
        compiled anew."""

    def unembed(self, states: Float[Tensor, "*N d"]) -> Float[Tensor, "*N V"]:
        """Returns the logits for states of one direction; both directions share the weights."""
        return F.linear(states, self.embedding.weight, self.output_bias)

    @torch.no_grad()
    def initialise(self, *, generator: torch.Generator) -> None:
        """Draws matrices from a normal distribution with a variance of 1 / (number of columns), and
        sets biases to 0, in forget gates to 1 (Jozefowicz et al. 2015)."""
        for weight in self.parameters():
            if weight.dim() == 2:
                weight.normal_(0, weight.shape[1] ** -0.5, generator=generator)
            else:
                weight.zero_()
        self.mix.gamma.fill_(1.0)
        for lstm in (*self.forward_lm, *self.backward_lm):
            lstm.get_parameter("bias_ih_l0")[self.d_cell : 2 * self.d_cell] = 1.0

    def save(self, folder: Path) -> None:
        weights = {name: weight.detach().contiguous() for name, weight in self.named_parameters()}
        save_file(weights, folder / FILE)

    def load(self, folder: Path) -> None:
        try:
            self.load_state_dict(load_file(folder / FILE), assign=True)
        except (OSError, RuntimeError) as error:
            raise ValueError(f"{folder / FILE}: {' '.join(str(error).split())[:300]}") from None

    def drop_output_layers(self) -> None:
        self.output_bias = None

    @property
    def logit_bias(self) -> Tensor | None:
        return self.output_bias


class _ScalarMix(nn.Module):
    """A learnt mix of layers h_j: gamma * sum_j softmax(s)_j h_j (ELMo; Peters et al. 2018, eq. 1);
    initially their mean."""

    def __init__(self, num_layers: int) -> None:
        super().__init__()
        self.s = nn.Parameter(torch.zeros(num_layers))
        self.gamma = nn.Parameter(torch.ones(()))

    def forward(self, layers: Float[Tensor, "J B T D"]) -> Float[Tensor, "B T D"]:
        weights = self.gamma * self.s.softmax(dim=0)
        return (weights[:, None, None, None] * layers).sum(dim=0)


def _reading_order(batch: Batch) -> tuple[Int[Tensor, "2 N"], list[int]]:
    """Returns the order in which the forward and the backward direction read the N tokens of a
    batch, as indices into the flattened rows, and the number of tokens of each step.

    It is that of a PackedSequence: the first tokens of all documents, longest document first, then
    their second tokens, and so on. Each step processes one token of each document that is long
    enough, so no state passes from one document to another, and padding is left out. The backward
    direction begins with the last tokens of the documents. The order is computed on the host, which
    would have to wait for a GPU's result.
    """
    document_ids, device = batch.readable_document_ids, batch.document_ids.device
    real = document_ids != PADDING
    neighbours = F.pad(document_ids, (1, 1), value=PADDING)
    first = (real & (document_ids != neighbours[:, :-2])).flatten().nonzero()[:, 0]
    last = (real & (document_ids != neighbours[:, 2:])).flatten().nonzero()[:, 0]
    lengths, by_length = (last - first + 1).sort(descending=True, stable=True)
    steps = torch.arange(int(lengths[0]), device=document_ids.device)[:, None]
    taken = steps < lengths
    forward, backward = first[by_length] + steps, last[by_length] - steps
    tokens = torch.stack([forward[taken], backward[taken]])
    if device.type == "cuda":
        tokens = tokens.pin_memory().to(device, non_blocking=True)
    return tokens, taken.sum(dim=1).tolist()


def _run(
    pair: list[Any], states: Float[Tensor, "2 N d"], batch_sizes: list[int]
) -> Float[Tensor, "2 N d"]:
    """Runs the forward and the backward LSTM of a layer on their packed inputs ``states``."""
    if states.is_cuda:
        sizes = torch.tensor(batch_sizes)
        # In float32: under autocast to bfloat16 cuDNN would use float16, which needs a scaled loss.
        with torch.autocast("cuda", enabled=False):
            return torch.stack(
                [
                    lstm(PackedSequence(x, sizes))[0].data
                    for lstm, x in zip(pair, states.float(), strict=True)
                ]
            )
    # The LSTMs written out: on a CPU the time of torch's backward pass over a PackedSequence grows
    # with the square of the number of steps. Here each step computes both directions at once.
    weights = []
    for lstm in pair:
        input_weight, recurrent_weight, bias, recurrent_bias, *projection = lstm.all_weights[0]
        # The two biases are added here: stacked separately, they would share a gradient's memory.
        weights.append([input_weight, recurrent_weight, bias + recurrent_bias, *projection])
    input_weight, recurrent_weight, bias, *projection = map(torch.stack, zip(*weights, strict=True))
    inputs = torch.baddbmm(bias.unsqueeze(1), states, input_weight.mT)
    output = torch.zeros_like(states[:, : batch_sizes[0]])
    cell = states.new_zeros(2, batch_sizes[0], pair[0].hidden_size, dtype=torch.float32)
    outputs = []
    for x in inputs.split(batch_sizes, dim=1):
        n = x.shape[1]
        gates = torch.baddbmm(x, output[:, :n], recurrent_weight.mT)
        write, keep, candidate, read = gates.chunk(4, dim=-1)
        cell = keep.sigmoid() * cell[:, :n] + write.sigmoid() * candidate.tanh()
        output = read.sigmoid() * cell.tanh()
        if projection:
            output = output @ projection[0].mT
        outputs.append(output)
    return torch.cat(outputs, dim=1)
