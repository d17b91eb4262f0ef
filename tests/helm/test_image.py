"""The steps of the Containerfile in a bare Debian root, and the resulting programs run as the chart runs them.

Long: it downloads Debian and the broker's dependencies. Skipped, with a message, where no root can be made (see
conftest.py).
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyarrow import parquet

from tests.support.chart import Document, Helm, find, pods
from tests.support.containerfile import Image, confined
from tests.support.pod_process import BrokerPod, Pod, contents

SMALL = ("settings.TOPICS_WAL_FILE_BYTES=1048576", "settings.TOPICS_WAL_SHARDS=2")

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def images(bare_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Image:
    return Image(bare_root, tmp_path_factory.mktemp("image"))


@pytest.fixture(scope="module")
def image(images: Image) -> Path:
    """A build without a target makes the last stage."""
    *_, last = images.stages
    return images.build(last)


@pytest.fixture(scope="module")
def exporter(images: Image) -> Path:
    return images.build("exporter")


class InRoot(Pod):
    """A pod of the chart in that root: read-only, without privileges, as the chart's user."""

    def __init__(self, documents: Sequence[Document], pod: Document, directory: Path, root: Path) -> None:
        directory.mkdir(exist_ok=True)
        super().__init__(documents, pod, directory)
        self._root = root
        self._user: int = pod["spec"]["securityContext"]["runAsUser"]
        directory.chmod(0o755)
        # What fsGroup does, and where the port is written.
        for folder in [*self.mounts.values()]:
            subprocess.run(["chown", "-R", f"{self._user}:{self._user}", str(folder)], check=True)
        for path in self.mounts:
            (root / path[1:]).mkdir(parents=True, exist_ok=True)

    def here(self, text: str) -> str:
        """Inside, everything is where the chart says."""
        return text

    def environment(self) -> dict[str, str]:
        found = super().environment()
        return found | {"PATH": "/opt/topics/bin:/usr/local/bin:/usr/bin:/bin", "PYTHONPATH": ""}

    def command(self) -> list[str]:
        return confined(self._root, "/opt/topics", self.mounts, self._user, self.container["command"])


class BrokerInRoot(InRoot, BrokerPod):
    """The broker of that root."""

    @property
    def port_file(self) -> tuple[str, Path]:
        return "/data/port", self.mounts["/data"] / "port"


def test_the_broker_runs_read_only_without_rights_and_keeps_its_data(helm: Helm, image: Path, tmp_path: Path) -> None:
    documents = helm.render(*[option for each in SMALL for option in ("--set", each)])
    with BrokerInRoot(documents, pods(documents)["StatefulSet"], tmp_path / "pod", image) as broker:
        broker.start()
        status = Path(f"/proc/{broker.pid}/status").read_text()
        assert re.search(r"^Uid:\t10001\t10001\t10001\t10001$", status, re.MULTILINE)
        assert re.search(r"^CapEff:\t0+$", status, re.MULTILINE)
        assert re.search(r"^CapBnd:\t0+$", status, re.MULTILINE)
        done = Pod(documents, pods(documents)["Pod"], tmp_path / "test").run(TOPICS_URL=broker.url)
        assert done.returncode == 0, done.stdout
        check = ["chroot", str(image), "/opt/topics/bin/python", "/opt/topics/healthcheck.py"]
        here = os.environ | {"TOPICS_PORT": str(broker.port)}
        assert subprocess.run(check, env=here, timeout=60, check=False).returncode == 0
        broker.terminate()
        assert broker.ended(60) == 0
        broker.start()


def test_the_image_has_exactly_the_needed_packages(image: Path) -> None:
    def inside(program: str) -> subprocess.CompletedProcess[str]:
        command = ["chroot", str(image), "/opt/topics/bin/python", "-c", program]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    done = inside("import broker, client, obstore, zttp; print(broker.__file__)")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("/opt/topics/")
    for absent in ("pip", "pytest", "pyspark"):
        assert "ModuleNotFoundError" in inside(f"import {absent}").stderr
    assert not (image / "src").exists()


def test_the_image_has_the_console(image: Path) -> None:
    [page] = (image / "opt/topics/lib").glob("python3*/site-packages/topics_broker/broker/console/static/index.html")
    [script] = re.findall(r'src="console/(app-\w+\.js)"', page.read_text())
    assert (page.parent / f"{script}.gz").stat().st_size > 10_000


def test_the_exporter_exports_with_spark_read_only_and_without_rights(
    helm: Helm, exporter: Path, tmp_path: Path
) -> None:
    wanted = ("export.schedule=@daily", "export.existingClaim=lake", "export.to=/export/files")
    documents = helm.render(*[option for each in (*SMALL, *wanted) for option in ("--set", each)])
    found = pods(documents)
    with BrokerPod(documents, found["StatefulSet"], tmp_path / "broker") as broker:
        broker.start()
        records = {"records": [{"data": {"n": n}} for n in range(3)]}
        key = contents(documents, "Secret", find(documents, "Secret")["metadata"]["name"])["admin-key"].decode()
        assert broker.call("POST", "/v0/topics/t", records, key=key)[0] == 201
        job = InRoot(documents, found["CronJob export"], tmp_path / "job", exporter)
        for _ in range(2):  # the second has nothing left to do
            done = job.run(TOPICS_URL=broker.url)
            assert done.returncode == 0, done.stdout
    [file] = (tmp_path / "job/lake/files").rglob("*.parquet")
    assert parquet.read_table(file).num_rows == 3
    assert not (exporter / "src").exists()
