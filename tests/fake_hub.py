"""A hub of models on this machine, as far as `huggingface_hub` needs one: lists, heads and whole files."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "c" * 40


class FakeHub:
    """Serves the folders below one, each of which is a model: OWNER/NAME."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fetched: list[str] = []
        """Files that were asked for whole, OWNER/NAME/FILE."""

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Its address while the block runs."""
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                self._answer(is_head=True)

            def do_GET(self) -> None:
                self._answer(is_head=False)

            def log_message(self, format: str, *args: object) -> None:
                del format, args

            def _answer(self, *, is_head: bool) -> None:
                status, headers, body = hub.answer(self.path.partition("?")[0], is_head=is_head)
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                if not is_head:
                    self.wfile.write(body)

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    def answer(self, path: str, *, is_head: bool) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and content."""
        match path.strip("/").split("/"):
            case ["api", "models", owner, name, "revision", _] if (
                model := self.folder / owner / name
            ).is_dir():
                listed = [{"rfilename": one.name} for one in sorted(model.iterdir())]
                return _json({"id": f"{owner}/{name}", "sha": COMMIT, "siblings": listed})
            case ["api", "models", owner, name, "tree", _] if (
                model := self.folder / owner / name
            ).is_dir():
                return _json([_entry(one) for one in sorted(model.iterdir())])
            case [owner, name, "resolve", _, file] if (
                found := self.folder / owner / name / file
            ).is_file():
                content = found.read_bytes()
                if not is_head:
                    self.fetched.append(f"{owner}/{name}/{file}")
                etag = f'"{hashlib.sha256(content).hexdigest()}"'
                return 200, {"ETag": etag, "X-Repo-Commit": COMMIT}, content
        return 404, {"X-Error-Code": self._missing(path)}, b""

    def _missing(self, path: str) -> str:
        """Whether a model is missing or a file of it, as the hub says it."""
        folders = [one for one in self.folder.glob("*/*") if one.is_dir()]
        is_known = any(f"/{one.parent.name}/{one.name}/" in path for one in folders)
        return "EntryNotFound" if is_known else "RepoNotFound"


def _json(said: object) -> tuple[int, dict[str, str], bytes]:
    return 200, {"Content-Type": "application/json"}, json.dumps(said).encode()


def _entry(file: Path) -> dict[str, object]:
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return {"type": "file", "path": file.name, "size": file.stat().st_size, "oid": digest[:40]}
