"""Settings of the broker, read from `TOPICS_*` environment variables.

Source: docs/reference/settings.md.
"""

from __future__ import annotations

import enum
import os
import socket
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, EnvSettingsSource, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from broker.auth import Keys, keys, parse_hosts, parse_origins
from broker.environment import PREFIX, ignored, is_injected
from broker.storage_settings import Count, StorageSettings

MIB = 1 << 20

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
    """Which protocol implementation serves: zttp speaks HTTP/1.1 and HTTP/2, httptools HTTP/1.1 alone."""

    ZTTP = "zttp"
    HTTPTOOLS = "httptools"


class SettingsError(Exception):
    """The settings are invalid; one sentence that names the variable."""


def _digested(value: Any) -> Any:
    """Replace the keys in a variable by their digests: nothing after this has the keys."""
    return keys.parse(value) if isinstance(value, str) else value


def _digested_file(value: Any) -> Any:
    """The digests of the keys in the file of that name."""
    if not isinstance(value, str | Path):
        return value
    try:
        return keys.parse_file(Path(value).read_text())
    except OSError as error:
        raise ValueError(f"{str(value)!r} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{str(value)!r} is not UTF-8") from None


class Advertised(NamedTuple):
    """The address that clients are told to connect to."""

    host: str
    port: int


def _advertised(value: Any) -> Any:
    """`host:port`, an IPv6 address in brackets."""
    if not isinstance(value, str):
        return value
    host, _, port = value.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) <= 65_535:
        raise ValueError("not host:port")
    return Advertised(host, int(port))


def _split_host(given: dict[str, Any]) -> dict[str, Any]:
    """Split a `host` of the form host:port (an IPv6 address in brackets); a separate `port` wins."""
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


class Settings(StorageSettings):
    """Each field is the variable `TOPICS_` + its name in capitals."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_ignore_empty=True,
        extra="ignore",
        case_sensitive=False,
        frozen=True,
        arbitrary_types_allowed=True,
        hide_input_in_errors=True,
    )

    host: str = Field("127.0.0.1", description="Address to listen on; host:port says the port as well.")
    port: Port = Field(4000, description="Port to listen on; 0 = any free one.")
    port_file: Path | None = Field(None, description="File to write the port to, once listening.")
    data_dir: Path = Field(Path("data"), description="Where everything is stored.")
    allowed_hosts: Annotated[frozenset[str] | None, NoDecode, BeforeValidator(parse_hosts)] = Field(
        None,
        description="Names that Host may have: a comma list, *.example.com for all below, * for any; unset = any with "
        "keys, without keys localhost and this machine's own. Addresses are always taken.",
    )
    cors_origins: Annotated[frozenset[str] | None, NoDecode, BeforeValidator(parse_origins)] = Field(
        None,
        description="Sites whose pages may use it: a comma list of scheme://host[:port], * for any; unset = its own.",
    )
    backup_dir: Path | None = Field(
        None, description="Where `topics backup` may write, there and below; unset = nowhere, it is refused."
    )
    http: HttpServer = Field(HttpServer.ZTTP, description="zttp (HTTP/1.1 and HTTP/2) or httptools (HTTP/1.1).")
    tls_cert: Path | None = Field(None, description="Certificate chain (PEM): serve TLS.")
    tls_key: Path | None = Field(None, description="Its private key, when not in the same file.")
    keep_alive_s: Annotated[int, Field(ge=1)] = Field(75, description="How long an idle connection is kept.")
    header_timeout_s: Seconds = Field(10, description="How long the head of a request may take, and a TLS handshake.")
    body_timeout_s: Seconds = Field(30, description="Bodies have to come at min_bytes_per_s, averaged over this time.")
    send_timeout_s: Seconds = Field(60, description="Answers have to be taken at min_bytes_per_s, likewise.")
    stall_timeout_s: Seconds = Field(
        10, description="While answers lack memory, a client that takes nothing for this long is cut off."
    )
    min_bytes_per_s: Count = Field(1024, description="How slow a client may be; 0 = anything that moves.")
    max_header_bytes: Annotated[int, Field(ge=256, le=16_384)] = Field(
        16_384, description="Longest head of a request: target and header fields."
    )
    max_connections: Count = Field(20_000, description="Most connections; 0 = no limit.")
    max_control_frames_per_s: Count = Field(
        100, description="HTTP/2: most PING, SETTINGS and RST_STREAM of a connection, averaged over 10 s; 0 = no limit."
    )
    kafka_port: Port | None = Field(
        None, description="Port to listen on for Kafka clients (extra kafka); 0 = any free one, unset = none."
    )
    kafka_host: str | None = Field(None, description="Address to listen on for them; unset = as host.")
    kafka_port_file: Path | None = Field(None, description="File to write that port to, once listening.")
    kafka_advertised: Annotated[Advertised | None, NoDecode, BeforeValidator(_advertised)] = Field(
        None, description="host:port told to Kafka clients; unset = the address by which each has come."
    )
    kafka_auto_partitions: Annotated[int, Field(ge=1, le=1024)] = Field(
        1, description="Partitions of topics that Kafka clients make without saying how many."
    )
    kafka_max_request_bytes: Annotated[int, Field(ge=1024, le=1 << 30)] = Field(
        100 * MIB, description="Largest request of a Kafka client, and most that a connection may have under way."
    )
    kafka_max_connections: Count = Field(10_000, description="Most connections of Kafka clients; 0 = no limit.")
    kafka_idle_s: Annotated[int, Field(ge=1)] = Field(600, description="How long one is kept without a request.")
    kafka_rest_prefix: Annotated[str, Field(pattern=r"^(/[A-Za-z0-9._~-]+)+$")] | None = Field(
        None, description="Path that the REST Proxy is below, as /kafka; unset = it is at the root, beside /v0."
    )
    kafka_rest_idle_s: Seconds = Field(300, description="How long its consumer instances are kept without a request.")
    max_kafka_rest_instances: Count = Field(10_000, description="Consumer instances of the REST Proxy; 0 = no limit.")
    kafka_rebalance_delay_ms: Count = Field(
        100, description="How long the first member of an empty group waits for others, each of which prolongs it."
    )
    kafka_min_session_ms: Annotated[int, Field(ge=1)] = Field(6_000, description="Shortest session.timeout.ms.")
    kafka_max_session_ms: Annotated[int, Field(ge=1)] = Field(1_800_000, description="Longest session.timeout.ms.")
    kafka_max_group_members: Count = Field(1_000, description="Most members of a consumer group; 0 = no limit.")
    kafka_max_groups: Count = Field(10_000, description="Most consumer groups, empty ones included; 0 = no limit.")
    kafka_group_retention_s: Count = Field(
        7 * 24 * 3600, description="How long a group without members is kept, and what it has committed; 0 = for ever."
    )
    log_level: LogLevel = Field(LogLevel.INFO, description="debug, info, warning or error.")
    log_format: LogFormat = Field(LogFormat.CONSOLE, description="console or json.")
    tracing: bool = Field(False, description="Spans for OpenTelemetry (extra otel); OTEL_* say where they go.")
    drain_ms: Count = Field(0, description="How long service goes on after SIGTERM, with /v0/ready at 503.")
    on_storage_failed: OnStorageFailed = Field(
        OnStorageFailed.STAY, description="When a log shard fails: stay (serve the others) or exit (code 70)."
    )
    allow_insecure_no_auth: bool = Field(False, description="Listen beyond this machine without keys.")
    api_keys: Annotated[Keys | None, NoDecode, BeforeValidator(_digested)] = Field(
        None, description="Who may do what: a comma list of key[:scopes[:prefixes]].", repr=False
    )
    api_keys_file: Annotated[Keys | None, NoDecode, BeforeValidator(_digested_file)] = Field(
        None, description="A file with more of them, also one a line.", repr=False
    )
    probe_auth: bool = Field(False, description="Health, readiness and the documentation need a key, too.")
    pressure_loop_lag_ms: Count = Field(
        500, description="Writes are refused (429) while the event loop is late by this much; 0 = never for that."
    )
    pressure_commit_ms: Count = Field(
        3000, description="Writes are refused (429) while the log takes this long to commit; 0 = never for that."
    )
    max_body_bytes: Annotated[int, Field(ge=1024)] = Field(64 * MIB, description="Largest body, decompressed too.")
    max_body_memory_bytes: Count = Field(
        256 * MIB, description="Most that bodies on their way may hold in memory, in all; 0 = no limit."
    )
    max_answer_memory_bytes: Count = Field(
        128 * MIB, description="Most that answers may hold in memory, in all; 0 = no limit."
    )
    max_answer_memory_bytes_per_connection: Count = Field(
        32 * MIB, description="Most that the answers of one connection may hold in memory; 0 = no limit."
    )
    max_parked: Count = Field(10_000, description="Most requests waiting for records or jobs; 0 = no limit.")
    max_sse_connections: Count = Field(
        10_000, description="Most open event streams, WebSockets among them; 0 = no limit."
    )
    max_sse_connections_per_key: Count = Field(1000, description="Most of them for each API key; 0 = no limit.")
    max_watch_sessions: Count = Field(10_000, description="Most watch sessions; 0 = no limit.")
    max_inflight_per_key: Count = Field(
        1000, description="Most requests of an API key at a time, those that wait aside; 0 = no limit."
    )

    @model_validator(mode="before")
    @classmethod
    def _host_with_port(cls, given: Any) -> Any:
        return _split_host(given) if isinstance(given, dict) else given  # pyright: ignore[reportUnknownArgumentType]

    @model_validator(mode="after")
    def _keys_are_different(self) -> Settings:
        self.all_keys()
        return self

    def all_keys(self) -> Keys:
        """The keys of the variable and of the file. Raises ValueError if a key is in both."""
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
    """The settings, and sentences to warn with. Raises SettingsError.

    Refuses unsafe settings: invalid keys, and a bind beyond this machine without keys. Removes the keys from the
    environment, which child processes would inherit.
    """
    try:
        settings = Settings()  # pyright: ignore[reportCallIssue]
    except ValidationError as error:
        raise SettingsError(_sentence(error)) from None
    for name in [name for name in os.environ if name.upper() == f"{PREFIX}API_KEYS"]:
        del os.environ[name]
    _refuse_unsafe(settings)
    return settings, ignored(os.environ, {name.upper() for name in Settings.model_fields})


def _sentence(error: ValidationError) -> str:
    first = error.errors()[0]
    variable = PREFIX + str((*first["loc"], "api_keys")[0]).upper()
    if variable.startswith(f"{PREFIX}API_KEYS"):
        return f"{variable}: {first['msg'].removeprefix('Value error, ')}."  # without the value
    return f"{variable} is {first['input']!r}: {first['msg'][:1].lower()}{first['msg'][1:]}."


def _refuse_unsafe(settings: Settings) -> None:
    if f"{settings.kafka_rest_prefix}/".startswith("/v0/"):
        raise SettingsError(f"{PREFIX}KAFKA_REST_PREFIX is {settings.kafka_rest_prefix!r}, where the API itself is.")
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
                f"set {PREFIX}ALLOW_INSECURE_NO_AUTH=1 if whoever reaches it may do everything."
            )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`: an address, or a name all of whose addresses are."""
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
    """All variables with their defaults, for --help."""
    lines: list[str] = []
    fields = Settings.model_fields
    own = [name for name in fields if name not in StorageSettings.model_fields]
    for name in (*own, *StorageSettings.model_fields):
        field = fields[name]
        default = "" if field.default is None else f" [{field.default}]"
        lines.append(f"  {PREFIX}{name.upper()}{default}\n      {field.description}")
    return "\n".join(lines)
