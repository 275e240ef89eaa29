"""What a cache of keys and values saves, and how long transformers takes for the same texts from
the same weights. Prints a Markdown table; run by hand, the result is in generation.md.

    python benchmarks/generation.py > benchmarks/generation.md
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import transformers
from torch import Tensor
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).parents[1]))

from stages.core.seeding import torch_stream
from stages.exporting.counterpart import counterpart
from stages.models._backbone import MODELS
from stages.models._generation import Decoding, Reader, prompts, write
from stages.models._heads import ModelWithHead
from stages.models._transformer import TransformerBackbone
from stages.text.batch import Batch
from stages.text.tokenizer import BOS_ID

VOCAB_SIZE, ROWS, INPUT_TOKENS, NEW_TOKENS = 8000, 32, 64, 64
DIMENSIONS = {"d_model": 256, "num_layers": 4, "num_heads": 4, "d_ff": 1024}
FAMILIES = {
    "GPT-2": ("decoder", {"positions": "learned", "max_positions": INPUT_TOKENS + NEW_TOKENS}),
    "T5": (
        "encoder_decoder",
        {"norm": "rmsnorm", "bias": False, "positions": "relative", "activation": "relu"}
        | {"output_bias": False},
    ),
}
NEVER = -1  # no <eos>: all texts are of the same length
OURS, UNCACHED, THEIRS = "cached", "not cached", "transformers"
Writers = dict[str, Callable[[], list[list[int]]]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="of each case, interleaved")
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    with torch.no_grad():
        cases = {
            (family, num_beams): writers(family, num_beams)
            for family in FAMILIES
            for num_beams in (1, 4)
        }
        for case, systems in cases.items():
            texts = [write() for write in systems.values()]  # a warm-up, too
            assert all(written == texts[0] for written in texts), f"{case}: other texts"
        times: dict[Any, list[float]] = {}
        for _ in tqdm(range(repeats), desc="repeats", disable=None):
            for case, systems in cases.items():
                for system, write in systems.items():
                    began = time.perf_counter()
                    write()
                    times.setdefault((case, system), []).append(time.perf_counter() - began)
    rows = []
    for family, num_beams in cases:
        medians = {
            system: statistics.median(times[(family, num_beams), system])
            for system in (OURS, UNCACHED, THEIRS)
            if ((family, num_beams), system) in times
        }
        row = {"": FAMILIES[family][0], "as": family, "beams": num_beams}
        row |= {f"{system} (s)": f"{median:.2f}" for system, median in medians.items()}
        for system in (UNCACHED, THEIRS):
            if system in medians:
                row[f"{system} / {OURS}"] = f"{medians[system] / medians[OURS]:.2f}"
        rows.append(row)
    print(
        f"{ROWS} inputs of {INPUT_TOKENS} tokens, {NEW_TOKENS} new ones each; d_model 256, 4 "
        f"layers (in each half), {VOCAB_SIZE} tokens in\nthe vocabulary, float32, one thread of a "
        f"CPU, torch {torch.__version__.partition('+')[0]}, transformers "
        f"{transformers.__version__}.\nAll systems write the same texts. Medians of {repeats} "
        "interleaved runs, and their ratios.\nWithout a cache the whole text is read for each "
        "token; with beams that is left out.\n"
    )
    print(pd.DataFrame(rows).fillna("").to_markdown(index=False))


def writers(family: str, num_beams: int) -> Writers:
    """Returns functions that write the same texts."""
    architecture, settings = FAMILIES[family]
    entry = {"name": architecture, **DIMENSIONS, **settings, "tied": architecture == "decoder"}
    model: TransformerBackbone = MODELS.build(entry, VOCAB_SIZE, where="model")
    model.initialise(generator=torch_stream(1, "weights"))
    for weight in model.parameters():  # else all logits are nearly alike
        weight.mul_(3 if weight.dim() > 1 else 1)
    model.eval()
    theirs = exported(model)
    ids = torch.randint(5, VOCAB_SIZE, (ROWS, INPUT_TOKENS), generator=torch_stream(1, "ids"))
    batch = Batch(input_ids=ids, document_ids=torch.ones_like(ids), num_targets={})
    decoding = Decoding(
        max_new_tokens=NEW_TOKENS, num_beams=num_beams, start_id=BOS_ID, eos_id=NEVER
    )
    how = {"length_penalty": 1.0, "early_stopping": "never"} if num_beams > 1 else {}
    prompt_tokens = INPUT_TOKENS if architecture == "decoder" else 1

    def by_transformers() -> list[list[int]]:
        generated = theirs.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=NEW_TOKENS,
            num_beams=num_beams,
            do_sample=False,
            **how,
        )
        return generated[:, prompt_tokens:].tolist()

    systems: Writers = {OURS: lambda: model.generate(batch, decoding), THEIRS: by_transformers}
    if num_beams == 1:
        systems[UNCACHED] = lambda: without_cache(model, batch, decoding)
    return systems


def exported(model: TransformerBackbone) -> Any:
    with_no_head = ModelWithHead(model, torch.nn.Identity())
    _, theirs = counterpart(with_no_head, max_tokens=INPUT_TOKENS + NEW_TOKENS)
    theirs.generation_config = transformers.GenerationConfig(
        eos_token_id=None, pad_token_id=0, decoder_start_token_id=BOS_ID
    )
    return theirs


class Whole(Reader):
    """Reads the whole text for each token; an encoder-decoder's input is read once."""

    def __init__(self, model: Any, batch: Batch) -> None:
        self.model, self.batch = model, batch
        if model.architecture == "decoder":
            self.written = prompts(batch).input_ids
        else:
            self.memory = model(batch)
            self.written = torch.full((len(batch.input_ids), 1), BOS_ID)

    def logits(self) -> Tensor:
        model, ids = self.model, self.written
        documents = torch.ones_like(ids)
        if model.architecture == "decoder":
            states = model(replace(self.batch, input_ids=ids, document_ids=documents))
        else:
            states = model.decoder(
                model.embedding(ids, documents),
                documents,
                memory=self.memory,
                memory_document_ids=self.batch.document_ids,
            )
        return model.unembed(states[:, -1])

    def read(self, tokens: Tensor) -> Tensor:
        self.written = torch.cat([self.written, tokens[:, None]], dim=1)
        return self.logits()

    def keep(self, rows: Tensor, beams: Tensor) -> None:
        raise AssertionError("no text ends before the others")


def without_cache(model: Any, batch: Batch, decoding: Decoding) -> list[list[int]]:
    reader = Whole(model, batch)
    return write(reader, reader.logits(), decoding)


if __name__ == "__main__":
    main()
