"""Exports to Google Cloud Storage, in every format, to an emulator (`tests/support/fake_gcs.py` says how)."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from pyiceberg import catalog
from pyiceberg.utils.config import Config

from pipeline.export.delta import DeltaChain, storage_options
from pipeline.export.iceberg import IcebergChain
from pipeline.export.maintenance import compact
from pipeline.export.part_settings import PartSettings
from pipeline.export.store import open_store, prove
from pipeline.export.verification import Verification
from tests.pipeline.exports import Exports, Overtaken, ended_pid
from tests.support.fake_gcs import BUCKET, BUILD_S, fake_gcs, heard
from tests.support.gcs_front import Heard
from tests.support.small_segments import SmallSegments

#: Whom the key of the service account is for.
ACCOUNT = "exports@tests.iam.gserviceaccount.com"

pytestmark = [pytest.mark.soak, pytest.mark.timeout(BUILD_S + 600)]


@pytest.fixture
def google(go: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A server. The environment has its address, and as the only credentials a file with the key of a service account,
    as Google makes them."""
    for name in [name for name in os.environ if name.startswith("GOOGLE_")]:
        monkeypatch.delenv(name)
    with fake_gcs(go, tmp_path) as address:
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(service_account(tmp_path)))
        monkeypatch.setenv("GOOGLE_BASE_URL", address)
        monkeypatch.setenv("PYICEBERG_CATALOG__TOPICS__GCS__SERVICE__HOST", address)
        # pyiceberg reads its configuration when it is imported.
        monkeypatch.setattr(catalog, "_ENV_CONFIG", Config())
        yield


def service_account(folder: Path) -> Path:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    found = {
        "type": "service_account",
        "project_id": "tests",
        "private_key_id": "0123456789abcdef",
        "private_key": pem.decode(),
        "client_email": ACCOUNT,
        "client_id": "1",
        "auth_uri": "https://accounts.google.com/o/oauth2/auth",
        "token_uri": "https://oauth2.googleapis.com/token",
    }
    path = folder / "account.json"
    path.write_text(json.dumps(found))
    return path


def issuer(request: Heard) -> str:
    """Whose key has signed the token of a request."""
    scheme, _, token = request.headers["authorization"].partition(" ")
    assert scheme == "Bearer"
    claims = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["iss"]


@pytest.mark.usefixtures("google")
@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_exports_in_every_format(broker: SmallSegments, tmp_path: Path, kind: str) -> None:
    topic, to = f"google-{kind}", f"gs://{BUCKET}/{kind}"
    where = f"sqlite:///{tmp_path}/catalog.db" if kind == "iceberg" else ""
    parts = PartSettings(kind=kind)
    broker.append(topic, 700)
    prove(open_store(to))
    with Exports(broker.url, to) as exports:
        assert exports.export(topic, parts=parts, catalog=where).records == 700
        assert exports.export(topic, parts=parts, catalog=where).manifests == []
        broker.append(topic, 10, first=700)
        assert exports.export(topic, parts=parts, catalog=where).records == 10
        assert compact(exports.store, topic, version="test").rows == 710
        verified = Verification(exports.store, topic).run(exports.origin)
        assert (verified.compared, verified.problems) == (710, [])
    assert {issuer(request) for request in heard(tmp_path)} == {ACCOUNT}


@pytest.mark.usefixtures("google")
@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_of_two_racing_commits_only_the_first_counts(
    broker: SmallSegments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Between the look at the export and the commit another exporter commits the same records."""
    topic, to = f"raced-{kind}", f"gs://{BUCKET}/raced-{kind}"
    where = f"sqlite:///{tmp_path}/catalog.db" if kind == "iceberg" else ""
    parts = PartSettings(kind=kind)
    broker.append(topic, 30)
    with Exports(broker.url, to) as exports:
        others: list[int] = []

        def overtake() -> None:
            if not others:
                others.append(0)
                others[0] = exports.export(topic, parts=parts, catalog=where).records

        if kind == "parquet":
            outcome = exports.export(topic, parts=parts, engine=Overtaken(overtake), pid=ended_pid())
        else:
            chain = {"delta": DeltaChain, "iceberg": IcebergChain}[kind]
            commit = chain.commit

            def late(*arguments: Any) -> Exception | None:
                overtake()
                return commit(*arguments)

            monkeypatch.setattr(chain, "commit", late)
            outcome = exports.export(topic, parts=parts, catalog=where, pid=ended_pid())
        assert (others, outcome.records, outcome.lost_races) == ([30], 0, 1)
        verified = Verification(exports.store, topic).run(exports.origin)
        assert (verified.compared, verified.problems) == (30, [])


@pytest.mark.usefixtures("google")
def test_the_library_of_delta_creates_each_commit_only_if_there_is_none(tmp_path: Path) -> None:
    """It looks for newer commits first, so only some of these races end at the store."""
    uri, options = f"gs://{BUCKET}/alone", storage_options("gs://")
    once = CommitProperties(max_commit_retries=0)
    write_deltalake(uri, pa.table({"n": [0]}), storage_options=options)

    def append(table: DeltaTable, row: int) -> list[int]:
        try:
            write_deltalake(table, pa.table({"n": [row]}), mode="append", commit_properties=once)
        except CommitFailedError:
            return []
        return [row]

    def puts() -> list[Heard]:
        return [each for each in heard(tmp_path) if each.method == "PUT" and "%5Fdelta%5Flog" in each.path]

    committed, rounds = [0], 0
    with ThreadPoolExecutor(4) as pool:
        while len(puts()) == len(committed) and rounds < 50:
            tables = [DeltaTable(uri, storage_options=options) for _ in range(4)]
            rounds += 1
            won = list(pool.map(append, tables, range(4 * rounds, 4 * rounds + 4)))
            committed += [row for rows in won for row in rows]
    found = DeltaTable(uri, storage_options=options)
    assert found.version() == len(committed) - 1
    assert sorted(found.to_pyarrow_table()["n"].to_pylist()) == committed
    assert len(puts()) > len(committed)
    found.optimize.compact()
    assert {each.headers.get("x-goog-if-generation-match") for each in puts()} == {"0"}
