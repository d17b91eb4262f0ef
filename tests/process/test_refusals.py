"""A broker that cannot start prints the reason on one line and exits with a code; no data changes."""

from __future__ import annotations

import hashlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker_process import PATIENCE_S, ROOT, TETHER, BrokerProcess, environment
from tests.support.certificate import certificate

CANNOT_START, BAD_SETTINGS = 1, 2

# PR_CAPBSET_DROP (24) of CAP_DAC_OVERRIDE (1): programs started after it, as root or not, obey file modes.
OBEDIENT = (
    sys.executable,
    "-c",
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(24, 1); os.execv(sys.argv[1], sys.argv[1:])",
)


def refusal(code: int, data_dir: Path, *, prefix: tuple[str, ...] = (), **settings: object) -> str:
    """Start a broker that exits with `code`. Returns the one line of stderr that is not an info line of the log."""
    done = subprocess.run(
        [*TETHER, *prefix, sys.executable, "-m", "broker"],
        cwd=ROOT,
        env=environment(data_dir, **settings),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    complaints = [line for line in done.stderr.splitlines() if "[info" not in line]
    assert len(complaints) == 1, done.stderr
    return complaints[0]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path, wal_shards=1, wal_file_bytes=1 << 16) as process:
        yield process


def fingerprint(data_dir: Path) -> dict[str, str]:
    """The contents of the data files."""
    return {
        str(path.relative_to(data_dir)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(data_dir.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def test_data_directory_in_use_by_another_broker(broker: BrokerProcess) -> None:
    broker.start()
    said = refusal(CANNOT_START, broker.data_dir)
    assert f"{broker.data_dir} is in use by another process" in said
    assert broker.ok("GET", "/v0/ready")["status"] == "ready"
    assert broker.stop() == 0


def test_log_damaged_in_the_middle(broker: BrokerProcess) -> None:
    broker.start()
    for number in range(20):
        body = {"records": [{"data": f"{number} {'x' * 20_000}"}], "config": {"durability": "fsync"}}
        broker.ok("POST", "/v0/topics/orders", body)
    broker.kill()
    first = broker.data_dir / "wal" / "wal-0000000000000001.log"
    content = bytearray(first.read_bytes())
    offset = content.index(b'"1 xxx') + 3000
    content[offset] ^= 0x20
    first.write_bytes(content)
    before = fingerprint(broker.data_dir)
    said = refusal(CANNOT_START, broker.data_dir)
    assert str(first) in said
    assert "offset" in said
    assert "TOPICS_RECOVERY=salvage" in said
    assert fingerprint(broker.data_dir) == before


def test_unreadable_snapshots_with_a_trimmed_log(broker: BrokerProcess) -> None:
    broker.start(snapshot_interval_ms=20, snapshot_wal_bytes=1)
    for _ in range(8):
        broker.ok("POST", "/v0/topics/orders", {"records": [{"data": "x" * 20_000}]})
    broker.ok("POST", "/v0/topics/orders/delete", {"before_seq": 9})
    first = broker.data_dir / "wal" / "wal-0000000000000001.log"

    def trimmed() -> bool:
        broker.ok("POST", "/v0/topics/orders", {"records": [{"data": 1}]})
        return not first.exists()

    broker.until(trimmed)
    assert broker.stop() == 0
    snapshots = list((broker.data_dir / "meta").glob("snapshot-*"))
    assert snapshots
    for path in snapshots:
        path.write_bytes(path.read_bytes()[:-1])
    before = fingerprint(broker.data_dir)
    # Here stderr also has a line for each snapshot.
    broker.launch()
    assert broker.wait() == CANNOT_START
    assert broker.log().count("snapshot_damaged") == len(snapshots)
    assert "No snapshot in meta/ can be read" in broker.log()
    assert "Traceback" not in broker.log()
    assert fingerprint(broker.data_dir) == before


def test_a_newer_format_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "FORMAT").write_text("3\n0123456789abcdef\n1\n")
    assert "format 3" in refusal(CANNOT_START, tmp_path)


def test_an_unwritable_data_directory_is_refused(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    assert "Permission denied" in refusal(CANNOT_START, locked, prefix=OBEDIENT)
    assert str(locked) in refusal(CANNOT_START, locked / "data", prefix=OBEDIENT)


@pytest.mark.parametrize("setting", ["port", "kafka_port"])
@pytest.mark.parametrize("is_tls", [False, True])
def test_port_in_use_is_reported_with_the_setting_to_change(tmp_path: Path, setting: str, is_tls: bool) -> None:
    cert, key = certificate(tmp_path)
    tls: dict[str, object] = {"tls_cert": cert, "tls_key": key} if is_tls else {}
    with socket.create_server(("127.0.0.1", 0)) as other:
        number = other.getsockname()[1]
        said = refusal(CANNOT_START, tmp_path / "data", **{setting: number}, **tls)
    variable = f"TOPICS_{setting.upper()}"
    expected = f"Port {number} on 127.0.0.1 is in use by another program: stop it, or set {variable} to another port."
    assert said == f"topics: {expected}"
    assert not (tmp_path / "data").exists()


def test_data_directory_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    assert str(tmp_path / "file") in refusal(CANNOT_START, tmp_path / "file" / "data")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"host": "::"}, "TOPICS_ALLOW_INSECURE_NO_AUTH=1"),
        ({"api_keys": "secret:rx"}, "TOPICS_API_KEYS: entry 1"),
        ({"api_keys_file": "keys"}, "TOPICS_API_KEYS_FILE: 'keys'"),
        ({"recovery": "hope"}, "TOPICS_RECOVERY is 'hope'"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_an_invalid_or_unsafe_setting_is_refused(tmp_path: Path, settings: dict[str, object], expected: str) -> None:
    said = refusal(BAD_SETTINGS, tmp_path / "data", **settings)
    assert expected in said
    assert "secret" not in said
    assert not (tmp_path / "data").exists()
