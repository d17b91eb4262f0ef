"""Broker, client, chart and image have one version. Each of the two distributions states it in one place."""

from __future__ import annotations

import re

import pytest
import yaml

import topics_client
from broker import VERSION
from tests.tidy.test_lock import project
from tests.tidy.tree import CLIENT, ROOT


def test_the_client_has_the_version_of_the_broker() -> None:
    assert topics_client.__version__ == VERSION


@pytest.mark.parametrize(("folder", "attribute"), [(".", "broker.VERSION"), (CLIENT, "topics_client.__version__")])
def test_a_distribution_takes_its_version_from_the_code(folder: str, attribute: str) -> None:
    found = project(folder)
    assert "version" not in found["project"]
    assert found["project"]["dynamic"] == ["version"]
    assert found["tool"]["setuptools"]["dynamic"] == {"version": {"attr": attribute}}


def test_chart_and_image_have_the_same_version() -> None:
    chart = yaml.safe_load((ROOT / "helm/Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == VERSION
    text = (ROOT / "Containerfile").read_text()
    assert set(re.findall(r"topics-(?:broker|exporter):(\S+)", text)) == {VERSION}
    assert re.findall(r"^ARG VERSION=(.*)", text, re.MULTILINE) == [VERSION]
    assert set(re.findall(r"topics-broker:(\d\S+)", (ROOT / "docs/guides/deploy.md").read_text())) == {VERSION}


def test_broker_and_client_have_the_same_license() -> None:
    assert (ROOT / CLIENT / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    assert project(CLIENT)["project"]["license"] == project()["project"]["license"]
