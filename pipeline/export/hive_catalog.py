"""pyiceberg's catalog in Hive's metastore, whose commits replace only the metadata that they are made from.

pyiceberg itself relies on a lock of the metastore, which times out: a commit that stood still for that long undid those
that others had made meanwhile. So a commit also names the metadata that it replaces, and a metastore of Hive 2.3.10, of
4.0, or later compares them in its own transaction (HIVE-26882, HIVE-28121). Others do not know of it: for them, the
commit makes sure at the last moment that it still has its lock. The lock remains in any case, for other writers' sake.

pyiceberg also calls for tables in a way that Hive 4 has removed, and waits for an answer without an end.
"""

from __future__ import annotations

import contextlib
import logging
from typing import Any
from urllib.parse import urlsplit

from hive_metastore.ttypes import (
    CheckLockRequest,
    GetTableRequest,
    LockState,
    MetaException,
    NoSuchLockException,
)
from pyiceberg.catalog import METADATA_LOCATION
from pyiceberg.catalog.hive import (
    HIVE_KERBEROS_AUTH,
    HIVE_KERBEROS_AUTH_DEFAULT,
    HIVE_KERBEROS_SERVICE_NAME,
    HIVE_KERBEROS_SERVICE_NAME_DEFAULT,
    PROP_PREVIOUS_METADATA_LOCATION,
    HiveCatalog,
    _HiveClient,  # pyright: ignore[reportPrivateUsage]
)
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.utils.properties import property_as_bool
from thrift.transport import TSocket, TTransport

#: What the metastore says of a commit that comes too late.
_MODIFIED = "The table has been modified"
#: The limits of a connection's opening and of each read or write, in ms. The second is that of Hive's own client.
OPEN_MS, CALL_MS = 10_000, 600_000

# The errors that are raised say the same. Without a handler, Python prints these, with their tracebacks.
logging.getLogger("thrift.transport.TSocket").addHandler(logging.NullHandler())


class ComparingHiveCatalog(HiveCatalog):
    """What Iceberg tables in a metastore are opened with."""

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        self._client: Any = _Connections(self._client)

    @staticmethod
    def _create_hive_client(properties: dict[str, str]) -> _HiveClient:
        return _Limited(
            properties["uri"].split(",")[0],
            properties.get("ugi"),
            property_as_bool(properties, HIVE_KERBEROS_AUTH, HIVE_KERBEROS_AUTH_DEFAULT),
            properties.get(HIVE_KERBEROS_SERVICE_NAME, HIVE_KERBEROS_SERVICE_NAME_DEFAULT),
        )


class _Limited(_HiveClient):
    """The library's connection, which does not wait for ever."""

    def _init_thrift_transport(self) -> Any:
        parts = urlsplit(self._uri)
        self._socket: Any = TSocket.TSocket(parts.hostname or "", parts.port or 0)
        self._socket.setTimeout(OPEN_MS)
        if not self._kerberos_auth:
            return TTransport.TBufferedTransport(self._socket)
        return TTransport.TSaslClientTransport(self._socket, host=parts.hostname, service=self._kerberos_service_name)

    def __enter__(self) -> Any:
        client = super().__enter__()
        self._socket.setTimeout(CALL_MS)
        return client


class _Connections:
    """The library's connection, to be opened once more for each call of the catalog."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def __enter__(self) -> _Comparing:
        return _Comparing(self._connection.__enter__())

    def __exit__(self, *error: Any) -> None:
        self._connection.__exit__(*error)


class _Comparing:
    """An open connection. Only commits alter tables through it."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._held: int | None = None

    def get_table(self, dbname: str, tbl_name: str) -> Any:
        # Hive 2.3 and later have this call. Hive 4 has removed the one that the library makes.
        return self._client.get_table_req(GetTableRequest(dbName=dbname, tblName=tbl_name)).table

    def lock(self, request: Any) -> Any:
        found = self._client.lock(request)
        self._held = found.lockid
        return found

    def alter_table_with_environment_context(
        self, dbname: str, tbl_name: str, new_tbl: Any, environment_context: Any
    ) -> None:
        environment_context.properties |= {
            "expected_parameter_key": METADATA_LOCATION,
            "expected_parameter_value": new_tbl.parameters[PROP_PREVIOUS_METADATA_LOCATION],
        }
        try:
            held = self._client.check_lock(CheckLockRequest(lockid=self._held)).state
            if held != LockState.ACQUIRED:
                raise CommitFailedException(f"The lock of {dbname}.{tbl_name} was lost.")
            self._client.alter_table_with_environment_context(dbname, tbl_name, new_tbl, environment_context)
        except NoSuchLockException as error:
            raise CommitFailedException(f"The lock of {dbname}.{tbl_name} has timed out.") from error
        except MetaException as error:
            if _MODIFIED not in str(error):
                raise
            raise CommitFailedException(f"{dbname}.{tbl_name} was changed meanwhile.") from error

    def unlock(self, request: Any) -> None:
        # A lock that has timed out says nothing of the commit.
        with contextlib.suppress(NoSuchLockException):
            self._client.unlock(request)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)
