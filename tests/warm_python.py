"""Python processes that start at once: forks of one process that has imported packages.

A study starts dozens of processes, and importing torch or DVC takes each of them longer than its
own work. ``commands()`` is a folder with a ``python`` and a ``dvc`` that send their command line,
folder, environment and open files to one process, which forks. The fork has imported nothing of
this project, and runs the command as Python would. ``python`` and ``dvc`` exit as the fork does,
and pass signals on to it; if they are killed, it is killed, too.

Not for tests of a process's imports, its memory, or how it is killed. All forks have one seed of
Python's hashes, so results that depend on the order of a set are equal in all of them.
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from filelock import FileLock

# Packages of the hub are left out: when imported, they take their settings from HOME.
PACKAGES = (
    *("filelock", "jaxtyping", "jinja2", "numpy", "pandas", "pydantic", "rich.console"),
    *("mlflow", "mlflow.store.tracking.sqlalchemy_store", "torch.distributed.fsdp"),
    *("ruamel.yaml", "safetensors.torch", "scipy.optimize", "scipy.stats", "sentencepiece"),
    *("sklearn.feature_extraction.text", "sklearn.linear_model", "torch", "torch._dynamo", "tqdm"),
    *("dvc.cli", "dvc.commands.repro", "dvc.repo", "dvc.repo.reproduce", "dvc.stage.run"),
    *("dvc.output", "dvc.parsing", "dvc.ignore", "dvc.scm", "dvc.lock", "dvc_data.hashfile.build"),
)
CLIENT = """\
#!{python} -IS
import json, os, signal, socket, sys
name, *words = sys.argv
request = {{
    "words": ["-m", "dvc", *words] if os.path.basename(name) == "dvc" else words,
    "folder": os.getcwd(),
    "environment": dict(os.environ),
    "umask": os.umask(0),
}}
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
text = json.dumps(request).encode()
socket.send_fds(server, [len(text).to_bytes(8, "big")], [0, 1, 2])
server.sendall(text)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, frame: server.sendall(bytes([number])))
code = int.from_bytes(server.recv(2), "big", signed=True)
if code < 0:
    if code != -signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""


@cache
def commands() -> Path:
    """Returns a folder to put first in PATH. All processes of one run of the tests share it. The
    first caller starts the server, which ends when the run of the tests ends."""
    folder = Path(tempfile.gettempdir(), f"warm-{os.environ.get('PYTEST_XDIST_TESTRUNUID')}")
    owner = os.getppid()
    if "PYTEST_XDIST_WORKER" not in os.environ:
        folder, owner = Path(tempfile.mkdtemp(prefix="warm-")), os.getpid()
    folder.mkdir(exist_ok=True)
    with FileLock(folder / "lock"):
        if not (folder / "ready").exists():
            _start(folder, owner)
            (folder / "ready").touch()
    return folder


def _start(folder: Path, owner: int) -> None:
    address = str(folder / "server")
    for name in ("python", "dvc"):
        (folder / name).write_text(CLIENT.format(python=sys.executable, address=address))
        (folder / name).chmod(0o755)
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_GLOBAL": os.devnull}
    environment["MLFLOW_DISABLE_TELEMETRY"] = "true"  # telemetry runs in a thread
    server = subprocess.Popen(
        [sys.executable, __file__, address, str(owner)],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert server.stdout is not None and server.stdout.readline() == b"ready\n"


def serve(address: str, owner: int) -> dict[str, Any]:
    """Forks for each request until the process ``owner`` ends; returns the request in the fork."""
    for name in PACKAGES:
        importlib.import_module(name)
    assert threading.active_count() == 1, "a fork has none of the other threads"
    gc.collect()
    gc.freeze()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    os.write(1, b"ready\n")
    ended = os.pidfd_open(owner)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nothing waits for the forks in ``_forked``
    while ended not in select.select([listener, ended], [], [])[0]:
        client = listener.accept()[0]
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return _forked(client)
        client.close()
    shutil.rmtree(Path(address).parent, ignore_errors=True)
    os._exit(0)


def _forked(client: socket.socket) -> dict[str, Any]:
    """Returns the request in a second fork. This process waits for it, and sends its exit code."""
    length, files, *_ = socket.recv_fds(client, 8, 3)
    text = b""
    while len(text) < int.from_bytes(length, "big"):
        text += client.recv(2**16)
    if (pid := os.fork()) == 0:
        for place, file in enumerate(files):
            os.dup2(file, place)
        os.closerange(3, 1024)
        return json.loads(text)
    os.closerange(0, 3)
    for file in files:
        os.close(file)
    process = os.pidfd_open(pid)
    while process not in select.select([process, client], [], [])[0]:
        number = client.recv(1)
        signal.pidfd_send_signal(process, number[0] if number else signal.SIGKILL)
        if not number:
            break
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with suppress(BrokenPipeError):  # the client was killed
        client.sendall(code.to_bytes(2, "big", signed=True))
    os._exit(0)


def run(
    words: list[str], folder: str, environment: dict[str, str], umask: int, address: str
) -> NoReturn:
    """Runs the command, and ends without tearing down all modules, which would take longer."""
    os.chdir(folder)
    os.umask(umask)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[1:1] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    sys.executable = str(Path(address).with_name("python"))  # its child processes are forks, too
    sys.orig_argv = [sys.executable, *words]
    if words[0] == "-u":  # torchrun passes it
        sys.stdout.reconfigure(write_through=True)  # type: ignore[union-attr]
        words = words[1:]
    code: object = 0
    try:
        match words:
            case ["-m", name, *rest]:
                sys.argv, sys.path[0] = [name, *rest], folder
                runpy.run_module(name, run_name="__main__", alter_sys=True)
            case ["-c", text, *rest]:
                sys.argv, sys.path[0] = ["-c", *rest], ""
                exec(compile(text, "<string>", "exec"), {"__name__": "__main__"})
            case [script, *rest]:
                sys.argv, sys.path[0] = [script, *rest], os.path.dirname(script)
                runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        code = traceback.format_exc().rstrip()
    if isinstance(code, str):
        print(code, file=sys.stderr)
    threading._shutdown()  # type: ignore[attr-defined] (waits for threads, as Python does)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1)


if __name__ == "__main__":
    run(**serve(sys.argv[1], int(sys.argv[2])), address=sys.argv[1])
