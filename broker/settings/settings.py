"""Settings of the broker, read from `TOPICS_*` environment variables.

Source: docs/reference/settings.md.
"""

from __future__ import annotations

import enum
import os
import re
import socket
import textwrap
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, EnvSettingsSource, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from broker.auth import Keys, keys, parse_hosts, parse_origins
from broker.settings.environment import PREFIX, ignored, is_injected
from broker.settings.storage_settings import Count, StorageSettings
from storage.bucket import IN_BUCKET, limits, parse_location

MIB = 1 << 20
MAX_NODE_NAME = 64
_SECRET_CHARS = 32
_HELP_WIDTH = 100
_INDENT = " " * 6

Seconds = Annotated[float, Field(gt=0)]
Port = Annotated[int, Field(ge=0, le=65_535)]


class LogFormat(enum.StrEnum):
    CONSOLE = "console"
    JSON = "json"


class LogLevel(enum.StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class OnStorageFailed(enum.StrEnum):
    STAY = "stay"
    EXIT = "exit"


class HttpServer(enum.StrEnum):
    """The protocol implementation: zttp supports HTTP/1.1 and HTTP/2, httptools only HTTP/1.1."""

    ZTTP = "zttp"
    HTTPTOOLS = "httptools"


class SettingsError(Exception):
    """A setting is invalid. The message names the variable."""


def _digested(value: Any) -> Any:
    """Replace the keys in a variable by their digests, so that the keys themselves are kept nowhere."""
    return keys.parse(value) if isinstance(value, str) else value


def _digested_file(value: Any) -> Any:
    """The digests of the keys in a file."""
    if not isinstance(value, str | Path):
        return value
    try:
        return keys.parse_file(Path(value).read_text())
    except OSError as error:
        raise ValueError(f"{str(value)!r} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{str(value)!r} is not UTF-8") from None


class Advertised(NamedTuple):
    """The address that is advertised to clients; in a set of cells that of cell 0."""

    host: str
    port: int


def _advertised(value: Any) -> Any:
    """Parse `host:port`; an IPv6 address is in brackets."""
    if not isinstance(value, str):
        return value
    host, _, port = value.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) <= 65_535:
        raise ValueError("expected host:port")
    return Advertised(host, int(port))


def _split_host(given: dict[str, Any]) -> dict[str, Any]:
    """Split a `host` of the form host:port (an IPv6 address is in brackets). A separate `port` takes precedence."""
    host = given.get("host")
    if not isinstance(host, str):
        return given
    if host.startswith("[") and host.endswith("]"):
        return {**given, "host": host[1:-1]}
    bracketed = host.startswith("[") and "]:" in host
    if not bracketed and host.count(":") != 1:
        return given  # a name, or a bare IPv6 address
    name, _, port = host.rpartition(":")
    return {"port": port, **given, "host": name[1:-1] if bracketed else name}


_Secret = Annotated[SecretStr, Field(min_length=_SECRET_CHARS)]


def _long(value: Any) -> Any:
    """The secret of a cluster. Its text is never repeated."""
    text = value.get_secret_value() if isinstance(value, SecretStr) else value
    if isinstance(text, str) and len(text) < _SECRET_CHARS:
        raise ValueError(
            f"it has {len(text)} characters, and needs {_SECRET_CHARS} or more; make one with: openssl rand -hex 32"
        )
    return value


def _bucket_url(value: Any) -> Any:
    """Check the form of a bucket's address. The address itself is never shown: it may contain a credential."""
    if isinstance(value, str):
        parse_location(value)
    return value


class Settings(StorageSettings):
    """All settings. A field is set by the variable `TOPICS_` + its name in upper case."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_ignore_empty=True,
        extra="ignore",
        case_sensitive=False,
        frozen=True,
        arbitrary_types_allowed=True,
        hide_input_in_errors=True,
    )

    host: str = Field("127.0.0.1", description="Address to listen on; host:port sets the port, too.")
    port: Port = Field(4000, description="Port to listen on; 0 = a free one.")
    port_file: Path | None = Field(None, description="File that the port is written to when the broker listens.")
    data_dir: Path = Field(Path("data"), description="Directory of all data.")
    gateways: Annotated[int, Field(ge=0, le=64)] = Field(
        1, description="Gateways of a set of cells: processes that take requests for all cells. One broker has none."
    )
    cell_ports: Port | None = Field(
        None,
        description="First port at which cells take HTTP requests without the gateway: cell i at this port + i; 0 = "
        "free ones, unset = none.",
    )
    cell_advertised: Annotated[Advertised | None, NoDecode, BeforeValidator(_advertised)] = Field(
        None,
        description="host:port of cell 0 that is advertised to HTTP clients, cell i at this port + i; unset = the host "
        "that each client named, and the ports of the cells.",
    )
    cluster_url: Annotated[str | None, BeforeValidator(_bucket_url)] = Field(
        None,
        description="Bucket and prefix of the cluster that this broker is a node of: s3://bucket/prefix, gs:// or "
        "az://; unset = none.",
    )
    node: Annotated[str, Field(pattern=rf"^[A-Za-z0-9._-]{{1,{MAX_NODE_NAME}}}$")] | None = Field(
        None, description="The name of this node, unique in its cluster; unset = the name of this machine."
    )
    cluster_host: str = Field("127.0.0.1", description="Address to listen on for other nodes of the cluster.")
    cluster_port: Port = Field(4300, description="Port for other nodes of the cluster; 0 = a free one.")
    cluster_advertised: Annotated[Advertised | None, NoDecode, BeforeValidator(_advertised)] = Field(
        None, description="host:port at which other nodes reach this one; unset = where it listens."
    )
    advertised: Annotated[Advertised | None, NoDecode, BeforeValidator(_advertised)] = Field(
        None, description="host:port at which HTTP clients reach a node of a cluster; unset = where it listens."
    )
    cluster_secret: Annotated[_Secret | None, BeforeValidator(_long)] = Field(
        None,
        description="Secret of 32 characters or more that all nodes of a cluster share; it makes their certificates.",
    )
    put_interval_ms: Count = Field(
        100,
        description="In a cluster: the least time between two writes of a cell to the bucket, unless 128 KiB wait; "
        "0 = none.",
    )
    cluster_disk_lag_ms: Annotated[int, Field(ge=1)] = Field(
        1000,
        description="In a cluster: writes of class disk are refused (503 wal_saturated) while older ones have not been "
        "in the bucket for this long.",
    )
    cluster_cert: Path | None = Field(
        None, description="File with this node's certificate (PEM) for other nodes, instead of the secret."
    )
    cluster_key: Path | None = Field(None, description="File with its private key; unset = in the same file.")
    cluster_ca: Path | None = Field(
        None, description="File with the certificates (PEM) that sign those of other nodes; set with cluster_cert."
    )
    allowed_hosts: Annotated[frozenset[str] | None, NoDecode, BeforeValidator(parse_hosts)] = Field(
        None,
        description="Names that are accepted in the Host header: a comma list; *.example.com = all below, * = all. "
        "Unset: all if there are keys, otherwise localhost and this machine's names. IP addresses are always accepted.",
    )
    cors_origins: Annotated[frozenset[str] | None, NoDecode, BeforeValidator(parse_origins)] = Field(
        None,
        description="Sites whose pages may use the broker: a comma list of scheme://host[:port], * = all; unset: "
        "its own.",
    )
    backup_dir: Path | None = Field(
        None,
        description="Directory that `topics backup` may write to, and below; unset = backups over HTTP are refused.",
    )
    http: HttpServer = Field(
        HttpServer.ZTTP, description="Protocol implementation: zttp (HTTP/1.1 and HTTP/2) or httptools (HTTP/1.1)."
    )
    tls_cert: Path | None = Field(None, description="File with the certificate chain (PEM); set = serve TLS.")
    tls_key: Path | None = Field(None, description="File with its private key; unset = in the same file.")
    keep_alive_s: Annotated[int, Field(ge=1)] = Field(75, description="How long an idle connection stays open.")
    header_timeout_s: Seconds = Field(
        10, description="The longest time for the head of a request, and for a TLS handshake."
    )
    body_timeout_s: Seconds = Field(
        30, description="Clients must send bodies at min_bytes_per_s, averaged over this time."
    )
    send_timeout_s: Seconds = Field(
        60, description="Clients must receive answers at min_bytes_per_s, averaged over this time."
    )
    stall_timeout_s: Seconds = Field(
        10,
        description="While memory for answers is short, a client that receives nothing for this long is disconnected.",
    )
    min_bytes_per_s: Count = Field(1024, description="The lowest rate of a client; 0 = any progress is enough.")
    max_header_bytes: Annotated[int, Field(ge=256, le=16_384)] = Field(
        16_384, description="The longest head of a request: target and header fields."
    )
    max_connections: Count = Field(20_000, description="The most connections; 0 = no limit.")
    max_control_frames_per_s: Count = Field(
        100,
        description="HTTP/2: the most PING, SETTINGS and RST_STREAM of a connection, averaged over 10 s; 0 = no limit.",
    )
    kafka_port: Port | None = Field(
        None, description='Port for Kafka clients (needs the extra "kafka"); 0 = a free one, unset = none.'
    )
    kafka_host: str | None = Field(None, description="Address to listen on for Kafka clients; unset = host.")
    kafka_port_file: Path | None = Field(
        None, description="File that the Kafka port is written to when the broker listens."
    )
    kafka_advertised: Annotated[Advertised | None, NoDecode, BeforeValidator(_advertised)] = Field(
        None,
        description="host:port that is advertised to Kafka clients; unset = the address that each client connected to.",
    )
    kafka_auto_partitions: Annotated[int, Field(ge=1, le=1024)] = Field(
        1, description="Partitions of topics that Kafka clients create without a number of partitions."
    )
    kafka_max_request_bytes: Annotated[int, Field(ge=1024, le=1 << 30)] = Field(
        100 * MIB,
        description="The largest request of a Kafka client, and the most bytes of requests in flight of a connection.",
    )
    kafka_max_connections: Count = Field(10_000, description="The most connections of Kafka clients; 0 = no limit.")
    kafka_idle_s: Annotated[int, Field(ge=1)] = Field(
        600, description="How long a connection of a Kafka client stays open without a request."
    )
    kafka_rest_prefix: Annotated[str, Field(pattern=r"^(/[A-Za-z0-9._~-]+)+$")] | None = Field(
        None, description="Path prefix of the REST Proxy, for example /kafka; unset = none, it is beside /v0."
    )
    kafka_rest_idle_s: Seconds = Field(
        300, description="How long consumer instances of the REST Proxy live without a request."
    )
    max_kafka_rest_instances: Count = Field(
        10_000, description="The most consumer instances of the REST Proxy; 0 = no limit."
    )
    kafka_rebalance_delay_ms: Count = Field(
        100, description="How long the first member of an empty group waits for others; each of them prolongs the wait."
    )
    kafka_min_session_ms: Annotated[int, Field(ge=1)] = Field(
        6_000, description="The shortest session.timeout.ms of Kafka clients."
    )
    kafka_max_session_ms: Annotated[int, Field(ge=1)] = Field(
        1_800_000, description="The longest session.timeout.ms of Kafka clients."
    )
    kafka_max_group_members: Count = Field(1_000, description="The most members of a consumer group; 0 = no limit.")
    kafka_max_groups: Count = Field(10_000, description="The most consumer groups, including empty ones; 0 = no limit.")
    kafka_group_retention_s: Count = Field(
        7 * 24 * 3600, description="How long a group without members and its committed offsets are kept; 0 = forever."
    )
    log_level: LogLevel = Field(
        LogLevel.INFO, description="Lowest level that is logged: debug, info, warning or error."
    )
    log_format: LogFormat = Field(LogFormat.CONSOLE, description="Format of the log: console or json.")
    tracing: bool = Field(
        False, description='Send spans to OpenTelemetry (needs the extra "otel"); OTEL_* variables configure where.'
    )
    drain_ms: Count = Field(0, description="How long the broker still serves after SIGTERM, with /v0/ready at 503.")
    on_storage_failed: OnStorageFailed = Field(
        OnStorageFailed.STAY,
        description="When a log shard fails: stay (serve the other shards) or exit (with code 70).",
    )
    allow_insecure_no_auth: bool = Field(
        False, description="Allow listening on addresses that other machines can reach without API keys."
    )
    api_keys: Annotated[Keys | None, NoDecode, BeforeValidator(_digested)] = Field(
        None, description="API keys: a comma list of key[:scopes[:prefixes]].", repr=False
    )
    api_keys_file: Annotated[Keys | None, NoDecode, BeforeValidator(_digested_file)] = Field(
        None, description="File with more API keys, separated by commas or lines.", repr=False
    )
    console: bool = Field(True, description="Serve the console at /console.")
    probe_auth: bool = Field(False, description="Require a key also for health, readiness and the documentation.")
    pressure_loop_lag_ms: Count = Field(
        500, description="Refuse writes (429) while the event loop is late by this much; 0 = never for this reason."
    )
    pressure_commit_ms: Count = Field(
        3000, description="Refuse writes (429) while the log takes this long to commit; 0 = never for this reason."
    )
    max_body_bytes: Annotated[int, Field(ge=1024)] = Field(
        64 * MIB, description="The largest body of a request, compressed and decompressed."
    )
    max_body_memory_bytes: Count = Field(
        256 * MIB, description="The most memory for all bodies of requests in flight; 0 = no limit."
    )
    max_answer_memory_bytes: Count = Field(128 * MIB, description="The most memory for all answers; 0 = no limit.")
    max_answer_memory_bytes_per_connection: Count = Field(
        32 * MIB, description="The most memory for the answers of one connection; 0 = no limit."
    )
    max_parked: Count = Field(10_000, description="The most requests that wait for records or jobs; 0 = no limit.")
    max_sse_connections: Count = Field(
        10_000, description="The most open event streams, including WebSockets; 0 = no limit."
    )
    max_sse_connections_per_key: Count = Field(
        1000, description="The most open event streams of an API key; 0 = no limit."
    )
    max_watch_sessions: Count = Field(10_000, description="The most watch sessions; 0 = no limit.")
    max_inflight_per_key: Count = Field(
        1000, description="The most requests in flight of an API key, without those that wait; 0 = no limit."
    )

    @model_validator(mode="before")
    @classmethod
    def _host_with_port(cls, given: Any) -> Any:
        return _split_host(given) if isinstance(given, dict) else given  # pyright: ignore[reportUnknownArgumentType]

    @model_validator(mode="after")
    def _keys_are_different(self) -> Settings:
        self.all_keys()
        return self

    @model_validator(mode="after")
    def _cluster_is_whole(self) -> Settings:
        if self.cluster_url is not None and self.cells > 1:
            raise ValueError("TOPICS_CELLS is set with TOPICS_CLUSTER_URL: the cluster knows its number of cells")
        if self.cluster_url is not None and self.cold_dir not in ("", IN_BUCKET):
            # A process that is not the owner any more could still replace an index there, and undo deletions.
            raise ValueError(
                f"TOPICS_COLD_DIR is {self.cold_dir!r} with TOPICS_CLUSTER_URL: it can be {IN_BUCKET!r} or empty, "
                "since older segments are in the bucket of the cluster anyway"
            )
        if self.cluster_url is not None and self.segment_max_bytes > limits.MAX_SEGMENT_BYTES:
            raise ValueError(
                f"TOPICS_SEGMENT_MAX_BYTES is {self.segment_max_bytes} with TOPICS_CLUSTER_URL: it can be at most "
                f"{limits.MAX_SEGMENT_BYTES} (256 MiB), since a segment is in memory while it is put into the bucket"
            )
        has_tls = self.cluster_secret is not None or self.cluster_cert is not None
        if self.cluster_url is not None and not has_tls and not is_loopback(self.cluster_host):
            raise ValueError(
                f"TOPICS_CLUSTER_HOST is {self.cluster_host!r}, which other machines can reach: set "
                "TOPICS_CLUSTER_SECRET, or TOPICS_CLUSTER_CERT and TOPICS_CLUSTER_CA"
            )
        if (self.cluster_cert is None) != (self.cluster_ca is None):
            raise ValueError("TOPICS_CLUSTER_CERT and TOPICS_CLUSTER_CA are set together")
        return self

    @property
    def node_name(self) -> str:
        """The name of this node in its cluster."""
        return self.node or re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:MAX_NODE_NAME] or "node"

    def all_keys(self) -> Keys:
        """The keys of the variable and of the file. Raises ValueError if both contain the same key."""
        return keys.merged(self.api_keys or (), self.api_keys_file or ())

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, _Environment(settings_cls)


class _Environment(EnvSettingsSource):
    """The environment without the variables that Kubernetes adds for a service named topics."""

    def __init__(self, settings_cls: type[BaseSettings]) -> None:
        super().__init__(settings_cls)
        self.env_vars = {name: value for name, value in self.env_vars.items() if not is_injected(name, value)}


def load() -> tuple[Settings, list[str]]:
    """Read the settings. Returns them with warnings. Raises SettingsError.

    Refuses unsafe settings: invalid keys, and an address that other machines can reach without keys. Removes the keys
    and the secret of the cluster from the environment, which child processes would inherit.
    """
    try:
        settings = Settings()  # pyright: ignore[reportCallIssue]
    except ValidationError as error:
        raise SettingsError(_message(error)) from None
    for name in [name for name in os.environ if name.upper() in (f"{PREFIX}API_KEYS", f"{PREFIX}CLUSTER_SECRET")]:
        del os.environ[name]
    _refuse_unsafe(settings)
    warnings = ignored(os.environ, {name.upper() for name in Settings.model_fields})
    if settings.cluster_url is not None and "segment_pack_bytes" in settings.model_fields_set:
        warnings.append(f"{PREFIX}SEGMENT_PACK_BYTES is ignored: cells in a bucket compress no segments.")
    return settings, warnings


def _message(error: ValidationError) -> str:
    first = error.errors()[0]
    if not first["loc"] and "TOPICS_CLUSTER" in first["msg"]:
        return f"{first['msg'].removeprefix('Value error, ')}."
    variable = PREFIX + str((*first["loc"], "api_keys")[0]).upper()
    if variable.startswith(tuple(f"{PREFIX}{name}" for name in ("API_KEYS", "CLUSTER_SECRET", "CLUSTER_URL"))):
        return f"{variable}: {first['msg'].removeprefix('Value error, ')}."  # does not show the value
    return f"{variable} is {first['input']!r}: {first['msg'][:1].lower()}{first['msg'][1:]}."


def _refuse_unsafe(settings: Settings) -> None:
    if f"{settings.kafka_rest_prefix}/".startswith("/v0/"):
        raise SettingsError(f"{PREFIX}KAFKA_REST_PREFIX is {settings.kafka_rest_prefix!r}, which is a path of the API.")
    if settings.tls_key is not None and settings.tls_cert is None:
        raise SettingsError(f"{PREFIX}TLS_KEY is set without {PREFIX}TLS_CERT.")
    if settings.all_keys() or settings.allow_insecure_no_auth:
        return
    exposed = [("HOST", settings.host)]
    if settings.kafka_port is not None and settings.kafka_host is not None:
        exposed.append(("KAFKA_HOST", settings.kafka_host))
    for variable, host in exposed:
        if not is_loopback(host):
            raise SettingsError(
                f"{PREFIX}{variable} is {host!r}, which other machines can reach, and no keys are set; "
                f"set {PREFIX}API_KEYS, or {PREFIX}ALLOW_INSECURE_NO_AUTH=1 to allow everything to everybody."
            )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`: a loopback address, or a name with only such addresses."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM) if host else []
    except OSError:
        return False
    return bool(found) and all(ip_address(entry[4][0]).is_loopback for entry in found)


def described() -> str:
    """The text of --help: all variables with defaults and descriptions."""
    lines: list[str] = []
    fields = Settings.model_fields
    own = [name for name in fields if name not in StorageSettings.model_fields]
    for name in (*own, *StorageSettings.model_fields):
        field = fields[name]
        default = "" if field.default in (None, "") else f" [{field.default}]"
        lines.append(f"  {PREFIX}{name.upper()}{default}")
        lines += textwrap.wrap(
            field.description or "",
            _HELP_WIDTH,
            initial_indent=_INDENT,
            subsequent_indent=_INDENT,
            break_on_hyphens=False,
        )
    return "\n".join(lines)
