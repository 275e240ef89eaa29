"""A server that answers huggingface_hub's client as the hub does."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, ClassVar

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class HubServer(BaseHTTPRequestHandler):
    """The part of the hub's interface that the client asks for a download of one repository."""

    kind: ClassVar[str] = "datasets"  # or models
    name: ClassVar[str] = "own/reviews"
    files: ClassVar[Mapping[str, bytes]] = {}
    sent: ClassVar[list[str]] = []  # names of the files whose content was sent

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        below, file = f"/api/{self.kind}/{self.name}", path.partition(f"/resolve/{COMMIT}/")[2]
        status, content, etag = 200, b"", "none"
        if path == f"{below}/revision/{COMMIT}":
            siblings = [{"rfilename": name} for name in self.files]
            about = {"id": self.name, "sha": COMMIT, "siblings": siblings}
            content = json.dumps(about).encode()
        elif path.startswith(f"{below}/tree/{COMMIT}"):
            content = json.dumps(self._listed(path.partition(COMMIT)[2].strip("/"))).encode()
        elif file in self.files:
            content, etag = self.files[file], hashlib.sha1(self.files[file]).hexdigest()
            self.sent.extend([file] if self.command == "GET" else [])
        else:
            status = 404
        self.send_response(status)
        headers = {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT, "Content-Length": len(content)}
        if status == 404:
            headers["X-Error-Code"] = "EntryNotFound"
        for name, value in headers.items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    do_HEAD = do_GET

    def _listed(self, folder: str) -> list[dict[str, Any]]:
        files = [
            {"type": "file", "path": name, "size": len(content), "oid": name}
            for name, content in self.files.items()
            if name.startswith(folder)
        ]
        if folder or "recursive=true" in self.path:
            return files
        folders = sorted({name.partition("/")[0] for name in self.files if "/" in name})
        return files + [{"type": "directory", "path": name, "oid": name} for name in folders]

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def hub(kind: str, name: str, files: Mapping[str, bytes]) -> Iterator[tuple[str, list[str]]]:
    """Serves a repository; yields the server's address and the list of the files that it sent."""
    sent = list[str]()
    handler = type("Hub", (HubServer,), {"kind": kind, "name": name, "files": files, "sent": sent})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", sent
        server.shutdown()
