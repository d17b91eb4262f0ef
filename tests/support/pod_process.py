"""Runs a rendered pod as a process here, with its command, environment, mounts and probes, without a cluster.

Folders replace what a kubelet does: each volume becomes one, Secrets and ConfigMaps are written into theirs, and paths
below a mount in the environment and the command lead there. The port is any free one. A node of a cluster has a
loopback address of its own, with the ports of the manifest; names of pods in the environment become these addresses.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.broker_process import LOOK_AGAIN_S, PATIENCE_S, PYTHON_PATH, TETHER
from tests.support.chart import Document, variables
from tests.support.chart import container as the_container

Contents = dict[str, bytes]


def contents(documents: Sequence[Document], kind: str, name: str) -> Contents:
    """The content of a Secret or ConfigMap."""
    [found] = [each for each in documents if each["kind"] == kind and each["metadata"]["name"] == name]
    if kind == "Secret":
        return {key: base64.b64decode(value) for key, value in found["data"].items()}
    return {key: value.encode() for key, value in found["data"].items()}


class Pod:
    """One pod of `documents`, which contain everything that it refers to. Claims are folders of their name in
    `directory`."""

    def __init__(
        self,
        documents: Sequence[Document],
        pod: Document,
        directory: Path,
        *,
        name: str = "",
        container: Document | None = None,
    ) -> None:
        """`container`: one of its init containers, instead of the chart's container."""
        self._documents = documents
        self.container = container or the_container(pod)
        self.directory = directory
        self.name = name
        self.mounts = {
            mount["mountPath"]: self._volume(pod, mount["name"]) for mount in self.container.get("volumeMounts") or ()
        }

    def _volume(self, pod: Document, name: str) -> Path:
        folder = self.directory / name
        # A volume claim template is not among the pod's volumes.
        [volume] = [each for each in pod["spec"]["volumes"] if each["name"] == name] or [{}]
        if "persistentVolumeClaim" in volume:
            folder = self.directory / volume["persistentVolumeClaim"]["claimName"]
        folder.mkdir(parents=True, exist_ok=True)
        for kind, part, key in (("Secret", "secret", "secretName"), ("ConfigMap", "configMap", "name")):
            if part in volume:
                there = contents(self._documents, kind, volume[part][key])
                items = volume[part].get("items") or [{"key": each, "path": each} for each in there]
                for item in items:
                    (folder / item["path"]).write_bytes(there[item["key"]])
        return folder

    def here(self, text: str) -> str:
        """A value of the environment or the command. A path below a mount leads to its folder."""
        for mount, folder in self.mounts.items():
            if text == mount or text.startswith(f"{mount}/"):
                return str(folder) + text.removeprefix(mount)
        return text

    def environment(self) -> dict[str, str]:
        """From this process's environment, only where programs are."""
        found: dict[str, str] = {}
        for source in self.container.get("envFrom", ()):
            for kind, part in (("ConfigMap", "configMapRef"), ("Secret", "secretRef")):
                if part in source:
                    there = contents(self._documents, kind, source[part]["name"])
                    found |= {name: value.decode() for name, value in there.items()}
        found |= variables(self.container, self.name, self._secret)
        return {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": PYTHON_PATH,
            **{name: self.here(value) for name, value in found.items()},
        }

    def _secret(self, name: str, key: str) -> str:
        return contents(self._documents, "Secret", name)[key].decode()

    def command(self) -> list[str]:
        program, *arguments = [self.here(part) for part in self.container["command"]]
        path = shutil.which(program, path=self.environment()["PATH"])
        assert path is not None, f"there is no program {program}"
        return [path, *arguments]

    def run(self, patience_s: float = PATIENCE_S, **more: str) -> subprocess.CompletedProcess[str]:
        """Run it to its end. `more`: variables that override others."""
        return subprocess.run(
            self.command(),
            env=self.environment() | more,
            cwd=self._empty(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=patience_s,
            check=False,
        )

    def _empty(self) -> Path:
        """The folder that the process starts in. Files that it leaves there would have been written to its image."""
        folder = self.directory / "image"
        folder.mkdir(exist_ok=True)
        return folder


class BrokerPod(Pod):
    """Run the broker. It is killed when the `with` block ends."""

    _process: subprocess.Popen[bytes] | None = None
    host = "127.0.0.1"
    port = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @property
    def port_file(self) -> tuple[str, Path]:
        """What the broker calls it, and where it is."""
        path = self.directory / "port"
        return str(path), path

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def url(self) -> str:
        return f"{'https' if self._tls() else 'http'}://{self.host}:{self.port}"

    def start(self) -> None:
        """Wait until it passes what a kubelet checks: the startup probe, then readiness."""
        named, port_file = self.port_file
        port_file.unlink(missing_ok=True)
        self._launch(TOPICS_PORT="0", TOPICS_PORT_FILE=named)
        self._until(port_file.exists)
        self.port = int(port_file.read_text())
        self._until(lambda: self.passes("startupProbe"))
        self._until(lambda: self.passes("readinessProbe"))

    def _launch(self, **more: str) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*TETHER, *self.command()],
                env=self.environment() | more,
                cwd=self._empty(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def passes(self, probe: str) -> bool:
        """Judged like a kubelet: any answer from 200 to 399, in time."""
        asked = self.container[probe]
        with contextlib.suppress(OSError):
            return 200 <= self.call("GET", asked["httpGet"]["path"], timeout_s=asked["timeoutSeconds"])[0] < 400
        return False

    def call(
        self, method: str, path: str, body: Any = None, *, key: str = "", timeout_s: float = PATIENCE_S
    ) -> tuple[int, Any]:
        """(status, answer), decoded if it is JSON. Certificates are not checked, as by a kubelet."""
        if self._tls():
            context = ssl._create_unverified_context()
            connection = http.client.HTTPSConnection(self.host, self.port, timeout=timeout_s, context=context)
        else:
            connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout_s)
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        with contextlib.closing(connection):
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            data = answer.read()
            is_json = answer.headers.get_content_type() == "application/json"
            return answer.status, json.loads(data) if is_json else data.decode()

    def terminate(self) -> None:
        self._running().send_signal(signal.SIGTERM)

    def ended(self, patience_s: float) -> int:
        """The exit code, within that time."""
        return self._running().wait(patience_s)

    def alive(self) -> bool:
        return self._running().poll() is None

    def kill(self) -> None:
        self._running().kill()
        self._running().wait()

    def log(self) -> str:
        return self._log.read_text()

    @property
    def _log(self) -> Path:
        return self.directory / "log"

    def _tls(self) -> bool:
        return self.container["readinessProbe"]["httpGet"]["scheme"] == "HTTPS"

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "it has not been started"
        return self._process

    def _until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert self.alive(), f"the broker ended with {self._running().returncode}:\n{self.log()}"
            assert time.monotonic() < deadline, f"nothing came of it in {PATIENCE_S} s:\n{self.log()}"
            time.sleep(LOOK_AGAIN_S)


class NodePod(BrokerPod):
    """Run one pod of a cluster: its init containers, and then the broker. `addresses`: of all pods, by the name that
    the DNS of Kubernetes gives them."""

    def __init__(
        self, documents: Sequence[Document], pod: Document, directory: Path, name: str, addresses: Mapping[str, str]
    ) -> None:
        super().__init__(documents, pod, directory, name=name)
        self._pod = pod
        self._addresses = addresses
        self.host = next(address for known, address in addresses.items() if known.startswith(f"{name}."))

    def environment(self) -> dict[str, str]:
        found = super().environment()
        self.port = int(found["TOPICS_PORT"])
        for name, value in found.items():
            for known, address in self._addresses.items():
                value = value.replace(known, address)
            found[name] = value
        return found | {"TOPICS_HOST": self.host, "TOPICS_CLUSTER_HOST": self.host}

    def begin(self, patience_s: float) -> None:
        """Run the init containers to their end, and start the broker without waiting for it. An init container that
        fails starts again."""
        deadline = time.monotonic() + patience_s
        for each in self._pod["spec"].get("initContainers", ()):
            prepared = Pod(self._documents, self._pod, self.directory, name=self.name, container=each)
            while (done := prepared.run(patience_s)).returncode:
                assert time.monotonic() < deadline, done.stdout
        self._launch()

    def wait_ready(self, patience_s: float) -> None:
        """Wait until it passes the startup probe and is ready. A container that ends starts again."""
        deadline = time.monotonic() + patience_s
        for probe in ("startupProbe", "readinessProbe"):
            while not self.passes(probe):
                if not self.alive():
                    self._launch()
                assert time.monotonic() < deadline, f"nothing came of it in {patience_s} s:\n{self.log()}"
                time.sleep(LOOK_AGAIN_S)
