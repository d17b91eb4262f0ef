"""The part of the Kubernetes API that Helm uses to look up an object: discovery, and readable Secrets and
StatefulSets."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any, Self

#: The kinds that the chart always renders. Helm 4 asks for all of them.
KINDS = {
    "v1": ("Secret", "Service", "ConfigMap", "ServiceAccount", "Pod"),
    "apps/v1": ("StatefulSet",),
    "policy/v1": ("PodDisruptionBudget",),
    "networking.k8s.io/v1": ("NetworkPolicy",),
}


def plural(kind: str) -> str:
    return kind.lower().removesuffix("y") + ("ies" if kind.endswith("y") else "s")


def resources(version: str) -> dict[str, Any]:
    verbs = ["get", "list", "create", "patch"]
    found = [
        {"name": plural(kind), "singularName": kind.lower(), "namespaced": True, "kind": kind, "verbs": verbs}
        for kind in KINDS[version]
    ]
    return {"kind": "APIResourceList", "groupVersion": version, "resources": found}


def group(version: str) -> dict[str, Any]:
    said = {"groupVersion": version, "version": version.rpartition("/")[2]}
    return {"name": version.partition("/")[0], "versions": [said], "preferredVersion": said}


GROUPS = [version for version in KINDS if "/" in version]
DISCOVERY: dict[str, Any] = {
    "/version": {"major": "1", "minor": "34", "gitVersion": "v1.34.0"},
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/api/v1": resources("v1"),
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group(version) for version in GROUPS]},
    **{f"/apis/{version}": resources(version) for version in GROUPS},
}
ABSENT = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}


class FakeCluster:
    """`secrets`, `stateful_sets`: by (namespace, name). Serves on a free port within the `with` block."""

    def __init__(self) -> None:
        self.secrets: dict[tuple[str, str], dict[str, Any]] = {}
        self.stateful_sets: dict[tuple[str, str], dict[str, Any]] = {}
        cluster = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = cluster.answer(self.path.partition("?")[0])
                body = json.dumps(found or ABSENT).encode()
                self.send_response(200 if found else 404)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def answer(self, path: str) -> dict[str, Any] | None:
        match path.strip("/").split("/"):
            case ["api", "v1", "namespaces", namespace, "secrets", name]:
                return self.secrets.get((namespace, name))
            case ["apis", "apps", "v1", "namespaces", namespace, "statefulsets", name]:
                return self.stateful_sets.get((namespace, name))
            case _:
                return DISCOVERY.get(path)

    def kubeconfig(self, folder: Path) -> Path:
        """A configuration file with which Helm finds it."""
        path = folder / "kubeconfig"
        url = f"http://127.0.0.1:{self._server.server_address[1]}"
        clusters = [{"name": "fake", "cluster": {"server": url}}]
        contexts = [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}]
        users = [{"name": "fake", "user": {}}]
        config = {"apiVersion": "v1", "kind": "Config", "clusters": clusters, "contexts": contexts, "users": users}
        path.write_text(json.dumps(config | {"current-context": "fake"}))
        return path

    def __enter__(self) -> Self:
        self._thread = Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
