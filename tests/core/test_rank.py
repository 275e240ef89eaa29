"""The rank of a process, from the variables of the program that started it."""

import pytest

from stages.core.rank import Rank, first_node, rank_of_process

SRUN = {
    "SLURM_JOB_ID": "123",
    "SLURM_STEP_ID": "4",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_STEP_NODELIST": "gpu[003-004]",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
}
BATCH_SCRIPT = {"SLURM_JOB_ID": "123", "SLURM_NTASKS": "8", "SLURM_PROCID": "0"}
TORCHRUN = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of a process that neither torchrun nor SLURM has started."""
    variables: dict[str, str] = {}
    monkeypatch.setattr("stages.core.rank.os.environ", variables)
    return variables


@pytest.mark.parametrize(
    ("variables", "rank"),
    [
        ({}, None),
        (TORCHRUN, Rank(3, 4, 1)),
        (SRUN, Rank(5, 8, 1)),
        (SRUN | TORCHRUN, Rank(3, 4, 1)),  # torchrun, started by srun on each node
        (BATCH_SCRIPT, None),
        (SRUN | {"SLURM_STEP_NUM_TASKS": "1"}, None),
    ],
)
def test_rank_of_process(environment, variables, rank) -> None:
    environment |= variables
    assert rank_of_process() == rank


def test_rank_of_process_tells_torch_the_first_node_under_srun(environment) -> None:
    environment |= SRUN
    rank_of_process()
    assert environment["MASTER_ADDR"] == "gpu003"
    port = int(environment["MASTER_PORT"])
    assert 1024 < port < 2**16
    environment |= {"MASTER_ADDR": "login", "MASTER_PORT": "4711"}
    rank_of_process()
    assert (environment["MASTER_ADDR"], environment["MASTER_PORT"]) == ("login", "4711")


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("gpu[003-007,12],login1", "gpu003"),
        ("gpu[7]", "gpu7"),
        ("a[1-2]b,c", "a1b"),
        ("node-1,node-2", "node-1"),
        ("alone", "alone"),
        ("", "localhost"),
    ],
)
def test_first_node_of_a_list(nodes, first) -> None:
    assert first_node(nodes) == first
