"""The steps of the Containerfile, carried out in a bare Debian root, and what they make run as the chart has it run.

Long: it downloads Debian and what the broker needs. Left out, and said, where no root can be made (see conftest.py).
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.chart import Document, Helm, pods
from tests.support.containerfile import Image, confined
from tests.support.pod_process import BrokerPod, Pod

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def image(bare_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Image(bare_root, tmp_path_factory.mktemp("image")).build()


class InImage(BrokerPod):
    """The broker's pod, in that root: read-only, without rights, as the user that the chart says."""

    def __init__(self, documents: Sequence[Document], directory: Path, root: Path) -> None:
        pod = pods(documents)["StatefulSet"]
        super().__init__(documents, pod, directory)
        self._root = root
        self._user: int = pod["spec"]["securityContext"]["runAsUser"]
        directory.chmod(0o755)
        # What fsGroup does, and where the port is written to.
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

    @property
    def port_file(self) -> tuple[str, Path]:
        return "/data/port", self.mounts["/data"] / "port"


def test_it_runs_read_only_without_rights_and_keeps_its_data(helm: Helm, image: Path, tmp_path: Path) -> None:
    small = ("settings.TOPICS_WAL_FILE_BYTES=1048576", "settings.TOPICS_WAL_SHARDS=2")
    documents = helm.render(*[option for each in small for option in ("--set", each)])
    with InImage(documents, tmp_path / "pod", image) as broker:
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


def test_it_has_what_it_needs_and_no_more(image: Path) -> None:
    def inside(program: str) -> subprocess.CompletedProcess[str]:
        command = ["chroot", str(image), "/opt/topics/bin/python", "-c", program]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    done = inside("import broker, client, obstore, zttp; print(broker.__file__)")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("/opt/topics/")
    for absent in ("pip", "pytest", "pyspark"):
        assert "ModuleNotFoundError" in inside(f"import {absent}").stderr
    assert not (image / "src").exists()
