"""A store of checkpoints: the results of each pretraining, addressed by a hash of all that they
depend on.

A model is one stage with several seeds. The stage takes the checkpoint of a seed from the store if
its settings, inputs and code have not changed. Workers that train seeds in parallel fill the store.
``.scratch/checkpoints/ADDRESS/`` holds the files of one checkpoint. An entry has a temporary name
until it is complete; a damaged entry counts as missing.
"""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from stages.core import paths
from stages.core.artifacts import Json, read_json, replacing, whole_contents, write_contents
from stages.core.keys import CheckpointKey
from stages.core.params import NONE
from stages.core.plans import PretrainPlan
from stages.training.checkpoint import fingerprint
from stages.training.device import Device

ROOT = paths.SCRATCH / "checkpoints"
PROGRESS = ("history", "rates", "samples")  # tables of a pretraining


def settings_of(
    plan: PretrainPlan, seed: int, device: Device, *, compute: Json | None = None
) -> Json:
    """Returns the settings that the weights of a checkpoint depend on, except for the number of
    processes, so that a training can resume with a different number. ``compute`` is the record of
    another device and its threads."""
    compute = compute or device.describe() | {"threads": plan.compute.threads}
    return plan.entry.model_dump(exclude={"seeds"}) | {"seed": seed, "compute": compute}


def identity_of(
    plan: PretrainPlan,
    checkpoint: CheckpointKey,
    device: Device,
    parent: Path | None = None,
    *,
    compute: Json | None = None,
) -> str:
    """Returns the fingerprint of the settings, the inputs and the code of a checkpoint. ``parent``
    is the folder of its parent's checkpoint, by default the one in data/pretrained."""
    settings = settings_of(plan, checkpoint.pretrain_seed, device, compute=compute)
    inputs = [paths.INPUTS / "models" / f"{checkpoint.model}.json"]
    if plan.entry.parent != NONE:
        inputs.append(
            parent or paths.pretrained(CheckpointKey(plan.entry.parent, checkpoint.pretrain_seed))
        )
    return fingerprint(settings | {"code": plan.code}, inputs)


def is_made(
    plan: PretrainPlan, checkpoint: CheckpointKey, device: Device, parent: Path | None
) -> bool:
    """Returns whether data/pretrained has a checkpoint of these settings, inputs and code, be it of
    another device."""
    record = paths.pretrained(checkpoint) / "run.json"
    if not record.is_file():
        return False
    made = read_json(record)
    compute = made["settings"]["compute"]
    return made["fingerprint"] == identity_of(plan, checkpoint, device, parent, compute=compute)


def address_of(
    plan: PretrainPlan, checkpoint: CheckpointKey, device: Device, parent: Path | None = None
) -> str:
    """Returns the address of a checkpoint in the store; ``parent`` as in ``identity_of``."""
    identity = identity_of(plan, checkpoint, device, parent)
    distributed = plan.distributed.model_dump()
    return fingerprint({"model": checkpoint.model, "identity": identity} | distributed, [])


def find(address: str) -> Path | None:
    """Returns the folder of an entry, or None if there is none or if it is damaged."""
    folder = ROOT / address
    return None if whole_contents(folder) is None else folder


def missing_seeds(plan: PretrainPlan, model: str, device: Device) -> list[int]:
    """Returns the seeds of a model whose checkpoints are not in the store."""
    return [
        seed
        for seed in plan.entry.seeds
        if find(address_of(plan, CheckpointKey(model, seed), device)) is None
    ]


@contextmanager
def new_entry(address: str) -> Iterator[Path]:
    """Yields an empty folder to fill, which then becomes the entry with this address."""
    with replacing(ROOT / address) as folder:
        folder.mkdir()
        yield folder
        write_contents(folder)


def take(entries: Mapping[CheckpointKey, Path], model: str) -> None:
    """Copies the entries of a model's checkpoints to the outputs of its stage."""
    outputs = {kind: paths.PROGRESS / kind / model for kind in PROGRESS}
    outputs |= {
        "pretrained": paths.PRETRAINED / model,
        "timing": paths.TIMINGS / "pretrain" / model,
    }
    for kind, output in outputs.items():
        with replacing(output) as folder:
            folder.mkdir()
            for checkpoint, entry in entries.items():
                (source,) = entry.glob(f"{kind}*")
                target = folder / f"{checkpoint.pretrain_seed}{source.suffix}"
                (shutil.copytree if source.is_dir() else shutil.copyfile)(source, target)
