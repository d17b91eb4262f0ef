"""The catalog of Iceberg tables: a SQLite file in the export, or one that `--catalog` names.

    (nothing)                         <to>/_topics/iceberg.db, if --to is a directory
    sqlite:///FILE, postgresql://…    a catalog in a database
    http://…, https://…               a REST catalog
    thrift://…                        Hive's metastore
    NAME                              a catalog in the configuration of pyiceberg: `.pyiceberg.yaml`, or the environment
                                      (PYICEBERG_CATALOG__NAME__URI, …__TOKEN, …)

Credentials are in the environment or in that configuration, and never in the text of --catalog.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from pipeline.errors import BadOption, StoreRefused
from pipeline.export import catalog_refusals
from pipeline.export.store import META, Store

#: The name of a catalog that is given by its URL: PYICEBERG_CATALOG__TOPICS__… adds to its properties.
NAME = "topics"
_TYPES = {"sqlite": "sql", "postgresql": "sql", "http": "rest", "https": "rest", "thrift": "hive"}
_NEEDS = "Iceberg tables need the package pyiceberg: pip install 'topics-broker[iceberg]'"
#: What pyiceberg does not read from the environment itself.
_FROM_ENVIRONMENT = {
    "s3.endpoint": "AWS_ENDPOINT_URL",
    "s3.access-key-id": "AWS_ACCESS_KEY_ID",
    "s3.secret-access-key": "AWS_SECRET_ACCESS_KEY",
    "s3.session-token": "AWS_SESSION_TOKEN",
    "s3.region": "AWS_REGION",
    "adls.account-name": "AZURE_STORAGE_ACCOUNT_NAME",
    "adls.account-key": "AZURE_STORAGE_ACCOUNT_KEY",
    "adls.sas-token": "AZURE_STORAGE_SAS_TOKEN",
    "adls.client-id": "AZURE_STORAGE_CLIENT_ID",
    "adls.client-secret": "AZURE_STORAGE_CLIENT_SECRET",
    "adls.tenant-id": "AZURE_STORAGE_TENANT_ID",
}
#: The pause after the first of several tries to open a catalog, in s.
PAUSE_S = 0.05
_OPEN_TRIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogs:
    """Which catalog, and the namespace of the tables in it."""

    catalog: str = ""
    namespace: str = "topics"

    def open(self, store: Store) -> Any:
        """The catalog. Raises BadOption, StoreRefused."""
        if any(char in store.url for char in "#?%"):
            raise BadOption(f"--to {store.url}: an Iceberg table cannot be below a name with #, ? or %.")
        try:
            from pyiceberg.catalog import load_catalog
            from pyiceberg.exceptions import NotInstalledError
        except ImportError as error:
            raise StoreRefused(_NEEDS) from error
        name, properties = self._properties(store)
        for attempt in range(_OPEN_TRIES):
            try:
                return _comparing(load_catalog(name, **properties))
            except (ImportError, NotInstalledError) as error:
                raise StoreRefused(f"The catalog needs another package: {error}") from error
            except Exception as error:
                # Two runs may create the tables of a new SQLite file at the same time.
                if attempt == _OPEN_TRIES - 1:
                    reason = self._unknown(error) or catalog_refusals.said(error, properties.get("uri", name))
                    raise StoreRefused(f"The Iceberg catalog cannot be opened: {reason}.") from error
                time.sleep(PAUSE_S * (attempt + 1))
        raise AssertionError

    def _unknown(self, error: Exception) -> str | None:
        """That a name of a catalog has no configuration."""
        if "://" in self.catalog or not isinstance(error, ValueError):
            return None
        return (
            f"pyiceberg's configuration has no catalog {self.catalog}, or no URL of it: .pyiceberg.yaml, or "
            f"PYICEBERG_CATALOG__{self.catalog.upper()}__URI. Or give --catalog a URL"
        )

    def _properties(self, store: Store) -> tuple[str, dict[str, str]]:
        found = {name: given for name, variable in _FROM_ENVIRONMENT.items() if (given := os.environ.get(variable))}
        if "://" not in store.url:
            # The library does not sync what it writes.
            found["py-io-impl"] = f"{__package__}.synced_files.SyncedFileIO"
        elif store.url.startswith("abfss://"):
            # The library would take adlfs, another package.
            found["py-io-impl"] = f"{__package__}.azure_files.AzureFileIO"
        if self.catalog and "://" not in self.catalog:
            return self.catalog, found
        uri = self.catalog or self._embedded(store)
        kind = _TYPES.get(urlsplit(uri).scheme.partition("+")[0])
        if kind is None:
            raise BadOption(
                f"--catalog must be a URL of {', '.join(_TYPES)}, or the name of a catalog in pyiceberg's "
                f"configuration, not {uri.partition('://')[0]}://."
            )
        if urlsplit(uri).password:
            raise BadOption(
                "--catalog must not contain a password: give the name of a catalog, and its URL in "
                "PYICEBERG_CATALOG__<NAME>__URI."
            )
        if kind == "hive" and _port_of(uri) is None:
            raise BadOption(f"--catalog {uri} has no port: write thrift://host:9083.")
        warehouse = store.url if "://" in store.url else f"file://{store.url}"
        return NAME, found | {"type": kind, "uri": uri, "warehouse": warehouse}

    def _embedded(self, store: Store) -> str:
        if "://" in store.url:
            raise BadOption(
                "An Iceberg export to a bucket needs --catalog: the URL of a REST catalog (https://…), of Hive "
                "(thrift://…), sqlite:///FILE on this machine, or the name of a catalog in pyiceberg's configuration."
            )
        return f"sqlite:///{store.url}/{META}/iceberg.db"


def _port_of(uri: str) -> int | None:
    try:
        return urlsplit(uri.split(",")[0]).port
    except ValueError:
        return None


def _comparing(catalog: Any) -> Any:
    """The catalog, in any case one whose commits compare."""
    if type(catalog).__module__ != "pyiceberg.catalog.hive":
        return catalog
    from pipeline.export.hive_catalog import ComparingHiveCatalog

    return ComparingHiveCatalog(catalog.name, **catalog.properties)
