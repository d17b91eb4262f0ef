"""A REST catalog of Iceberg tables, for tests: the endpoints of the specification that an export needs.

It is no product. pyiceberg's own catalog in SQLite checks the requirements of each commit and stores the tables; this
server only speaks the protocol before it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote

from pyiceberg.catalog.rest import CreateTableRequest, TableResponse
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableRequest, StagedTable
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

_STATUS: dict[type[Exception], int] = {
    CommitFailedException: 409,
    NamespaceAlreadyExistsError: 409,
    TableAlreadyExistsError: 409,
    NoSuchNamespaceError: 404,
    NoSuchTableError: 404,
}


class RestCatalog:
    """`url` is that of the catalog. `lost`: how many of the next commits are carried out and answered with 500."""

    def __init__(self, folder: Path, token: str, **properties: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        uri = f"sqlite:///{folder}/rest.db"
        self.catalog = SqlCatalog("rest", uri=uri, warehouse=f"file://{folder}", **properties)
        self.token = token
        self.lock = threading.Lock()
        self.lost = 0
        self.commits = 0
        self.url = ""

    @contextmanager
    def serving(self) -> Iterator[RestCatalog]:
        """Serve on a port of loopback."""

        class Handler(_Handler):
            server_catalog = self

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            self.url = f"http://127.0.0.1:{server.server_address[1]}"
            thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
            thread.start()
            try:
                yield self
            finally:
                server.shutdown()
                thread.join()

    def answer(self, method: str, parts: list[str], body: bytes) -> tuple[int, str]:
        """The status and the JSON of a request to /v1/…."""
        match method, parts:
            case "GET", ["config"]:
                return 200, '{"defaults": {}, "overrides": {}}'
            case "POST", ["namespaces"]:
                self.catalog.create_namespace(tuple(json.loads(body)["namespace"]))
                return 200, body.decode()
            case "GET" | "HEAD", ["namespaces", name]:
                self.catalog.load_namespace_properties(name)
                return 200, json.dumps({"namespace": [name], "properties": {}})
            case "POST", ["namespaces", name, "tables"]:
                return 200, self._created(name, CreateTableRequest.model_validate_json(body))
            case "GET" | "HEAD", ["namespaces", name, "tables", table]:
                return 200, _answer_of(self.catalog.load_table((name, table)))
            case "POST", ["namespaces", name, "tables", table]:
                return self._committed((name, table), CommitTableRequest.model_validate_json(body))
            case _:
                return 404, _error(404, "NoSuchEndpoint")

    def _created(self, name: str, wanted: CreateTableRequest) -> str:
        if self.catalog.table_exists((name, wanted.name)):
            raise TableAlreadyExistsError(wanted.name)
        assert wanted.stage_create
        staged = self.catalog._create_staged_table(  # pyright: ignore[reportPrivateUsage]
            (name, wanted.name),
            wanted.table_schema,
            wanted.location,
            wanted.partition_spec or UNPARTITIONED_PARTITION_SPEC,
            wanted.write_order or UNSORTED_SORT_ORDER,
            wanted.properties,
        )
        return _answer_of(staged)

    def _committed(self, name: tuple[str, str], wanted: CommitTableRequest) -> tuple[int, str]:
        named: Any = StagedTable(name, None, "", None, self.catalog)  # pyright: ignore[reportArgumentType]
        done = self.catalog.commit_table(named, wanted.requirements, wanted.updates)
        self.commits += 1
        if self.lost:
            self.lost -= 1
            return 500, _error(500, "InternalServerError")
        return 200, done.model_dump_json()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_catalog: ClassVar[RestCatalog]

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        catalog = self.server_catalog
        parts = [unquote(part) for part in self.path.partition("?")[0].split("/")[2:]]
        if self.headers.get("Authorization") != f"Bearer {catalog.token}":
            status, text = 401, _error(401, "NotAuthorizedException")
        else:
            try:
                with catalog.lock:
                    status, text = catalog.answer(self.command, parts, body)
            except tuple(_STATUS) as error:
                status = _STATUS[type(error)]
                text = _error(status, type(error).__name__)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text.encode())

    do_HEAD = do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass


def _answer_of(table: Any) -> str:
    return TableResponse(
        **{"metadata-location": table.metadata_location, "metadata": table.metadata, "config": {}}
    ).model_dump_json(by_alias=True)


def _error(status: int, kind: str) -> str:
    return json.dumps({"error": {"message": kind, "type": kind, "code": status}})
