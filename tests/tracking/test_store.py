import os
import subprocess
from pathlib import Path

import pytest

from stages.core import locks
from stages.core.locks import LockHeld
from stages.core.params import Params
from stages.tracking import store
from stages.tracking.store import exclusive
from stages.tracking.view import reconcile
from tests import warm_python
from tests.tracking.tracked_study import client

PROJECT = Path(__file__).parents[2]


@pytest.mark.slow
def test_exclusive_lets_two_processes_create_the_store_at_once(params: Params) -> None:
    Path("mlflow.db").unlink()
    code = (
        "from stages.tracking.store import exclusive\n"
        "from stages.tracking.view import View\n"
        "with exclusive(): View('smoke')"
    )
    unmeasured = {k: v for k, v in os.environ.items() if not k.startswith("COVERAGE")}
    environment = unmeasured | {"PYTHONPATH": str(PROJECT)}
    python = warm_python.commands() / "python"
    both = [subprocess.Popen([python, "-c", code], env=environment) for _ in range(2)]
    assert [process.wait(180) for process in both] == [0, 0]
    names = [experiment.name for experiment in client().search_experiments()]
    assert sorted(names) == ["Default", "smoke"]


def test_warn_prints_no_password(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://someone:s3cret@127.0.0.1:9/x")
    reason = "no answer of http://someone:s3cret@127.0.0.1:9/x/api and http://other:s3cret@host/"
    with store.errors_as_warnings():
        raise OSError(reason + "." * 1000)
    printed = capsys.readouterr().err
    assert printed.startswith("warning: MLflow (http://127.0.0.1:9/x): no answer of http://127.0.")
    assert "s3cret" not in printed and "someone" not in printed and len(printed) < 500


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://a:b@host:80/path?x=1", "https://host:80/path"),
        ("http://a:b/c@d@host:80/path", "http://host:80/path"),
        ("http://a:b[c@host", "http://host"),
        ("a:b@host/path", "host/path"),
        ("postgresql://host/db?user=a&password=b", "postgresql://host/db"),
        ("postgresql://a:p@ss@host/db", "postgresql://host/db"),
        ("https://token@host", "https://host"),
        ("https://host:80/a@b", "https://host:80/a@b"),
        ("sqlite:////home/me/mlflow.db", "sqlite:////home/me/mlflow.db"),
    ],
)
def test_without_user_keeps_the_rest_of_an_address(
    address: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    assert store.without_user(address) == shown


@pytest.mark.slow
def test_report_prints_no_password_of_a_server(params: Params) -> None:
    """MLflow and its imports print none, either."""
    code = (
        "from stages.tracking.view import View\n"
        "from stages.tracking.store import errors_as_warnings, exclusive\n"
        "with errors_as_warnings(), exclusive(): View('smoke')"
    )
    settings = {
        "MLFLOW_TRACKING_URI": "http://someone:s3cret@127.0.0.1:9",
        "PYTHONPATH": str(PROJECT),
    }
    settings |= {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
    python = warm_python.commands() / "python"
    done = subprocess.run(
        [python, "-c", code], env=os.environ | settings, capture_output=True, text=True, check=True
    )
    assert "warning: MLflow (http://127.0.0.1:9): " in done.stderr
    assert "s3cret" not in done.stdout + done.stderr


@pytest.mark.slow
def test_reconcile_refuses_to_wait_for_ever(
    params: Params, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(locks, "WAIT_S", 0.1)
    with exclusive(), pytest.raises(LockHeld, match=r"mlflow\.lock; wait until it ends, or"):
        reconcile(params)
    assert "mlflow.lock" in capsys.readouterr().err
