"""Show what each run of params.yaml will cost, before anything runs."""

import argparse
from dataclasses import asdict

from rich import box
from rich.console import Console
from rich.table import Table

from stages.check_params import find_faults
from stages.params import Params, Run, load
from stages.process import exit_on_mistake
from stages.training.budget import outline, plans, step_flops, trains


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m stages.commands.plan", description=__doc__)
    parser.parse_args()
    exit_on_mistake(lambda: show(load(), Console()))


def show(params: Params, console: Console) -> None:
    """Raises ValueError with every fault of params.yaml."""
    if faults := list(find_faults(params)):
        raise ValueError("\n".join(faults))
    budget = params.budget
    title = "What runs cost"
    if budget.matched != "none":
        title += f", matched in {budget.matched} with {budget.reference}"
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        collapse_padding=True,
        pad_edge=False,
    )
    for column in ("run", "objective"):
        table.add_column(column, overflow="fold")
    for column in ("layers", "weights", "steps", "tokens", "FLOPs"):
        table.add_column(column, justify="right", no_wrap=True)
    for key, plan in plans(params).items():
        run = params.pretrain[key].planned(asdict(plan))
        table.add_row(key, *_row(params, run))
    console.print(table)


def _row(params: Params, run: Run) -> list[str]:
    if run.is_public:
        return [run.learnt[0], *["–"] * 5]  # what others did; its size is known once it is here
    backbone = outline(run.model, params.tokenizers[run.tokenizer].vocab_size, where="model")
    num_params = sum(weight.numel() for weight in backbone.parameters())
    cells = [run.objective["name"], str(run.model["num_layers"]), f"{num_params / 1e6:.2f}M"]
    if not trains(run):
        return [*cells, "–", "–", "–"]
    tokens = run.training.num_steps * run.training.batch_rows * run.training.max_tokens
    operations = run.training.num_steps * step_flops(params, run)
    return [*cells, str(run.training.num_steps), f"{tokens / 1e6:.2f}M", f"{operations:.1e}"]


if __name__ == "__main__":
    main()
