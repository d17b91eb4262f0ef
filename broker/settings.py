"""Settings of the broker, read from `TOPICS_*` environment variables (source: api.md §9)."""

from __future__ import annotations

import enum
import os
import socket
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from broker.storage_settings import Count, StorageSettings

PREFIX = "TOPICS_"
MIB = 1 << 20

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
    """The settings make no sense; one sentence naming the variable."""


class Settings(StorageSettings):
    """Each field is the variable `TOPICS_` + its name in capitals."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, extra="ignore", case_sensitive=False, frozen=True
    )

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: Port = Field(4000, description="Port to listen on; 0 = any free one.")
    port_file: Path | None = Field(None, description="File to write the port to, once listening.")
    data_dir: Path = Field(Path("data"), description="Where everything is stored.")
    backup_dir: Path | None = Field(
        None, description="Where `topics backup` may write, there and below; unset = nowhere, it is refused."
    )
    http: HttpServer = Field(HttpServer.ZTTP, description="zttp (HTTP/1.1 and HTTP/2) or httptools (HTTP/1.1).")
    tls_cert: Path | None = Field(None, description="Certificate chain (PEM): serve TLS.")
    tls_key: Path | None = Field(None, description="Its private key, when not in the same file.")
    keep_alive_s: Annotated[int, Field(ge=1)] = Field(75, description="How long an idle connection is kept.")
    log_level: LogLevel = Field(LogLevel.INFO, description="debug, info, warning or error.")
    log_format: LogFormat = Field(LogFormat.CONSOLE, description="console or json.")
    drain_ms: Count = Field(0, description="How long service goes on after SIGTERM, with /v0/ready at 503.")
    on_storage_failed: OnStorageFailed = Field(
        OnStorageFailed.STAY, description="When a log shard fails: stay (serve the others) or exit (code 70)."
    )
    allow_insecure_no_auth: bool = Field(False, description="Listen beyond this machine without keys.")
    api_keys: str | None = Field(None, description="Not supported yet: setting it refuses to start.", repr=False)
    api_keys_file: Path | None = Field(None, description="Not supported yet: setting it refuses to start.")
    max_body_bytes: Annotated[int, Field(ge=1024)] = Field(64 * MIB, description="Largest body, decompressed too.")
    max_parked: Count = Field(10_000, description="Most requests waiting for records or jobs; 0 = no limit.")
    max_sse_connections: Count = Field(
        10_000, description="Most open event streams, WebSockets among them; 0 = no limit."
    )
    max_watch_sessions: Count = Field(10_000, description="Most watch sessions; 0 = no limit.")

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
    """The environment without what Kubernetes puts there for a service named topics."""

    def __init__(self, settings_cls: type[BaseSettings]) -> None:
        super().__init__(settings_cls)
        self.env_vars = {name: value for name, value in self.env_vars.items() if not is_injected(name, value)}


def is_injected(variable: str, value: str | None) -> bool:
    """Whether Kubernetes made this variable: TOPICS_…PORT=tcp://10.0.0.1:4000."""
    name = variable.upper()
    return name.startswith(PREFIX) and name.endswith("PORT") and value is not None and value.startswith("tcp://")


def load() -> tuple[Settings, list[str]]:
    """The settings, and sentences to warn with. Raises SettingsError.

    Refuses what would be unsafe: keys that this version cannot check, and a bind beyond this machine without keys.
    """
    try:
        settings = Settings()  # pyright: ignore[reportCallIssue]
    except ValidationError as error:
        raise SettingsError(_sentence(error)) from None
    _refuse_unsafe(settings)
    return settings, [
        f"{name} is ignored: {value!r} was put there by Kubernetes for a service of that name."
        for name, value in os.environ.items()
        if is_injected(name, value)
    ]


def _sentence(error: ValidationError) -> str:
    first = error.errors()[0]
    variable = PREFIX + str(first["loc"][0]).upper()
    return f"{variable} is {first['input']!r}: {first['msg'][:1].lower()}{first['msg'][1:]}."


def _refuse_unsafe(settings: Settings) -> None:
    for name, value in (("API_KEYS", settings.api_keys), ("API_KEYS_FILE", settings.api_keys_file)):
        if value is not None:
            raise SettingsError(
                f"{PREFIX}{name} is set, but this version cannot check keys yet and would let everyone in; "
                "it does not start while it is set."
            )
    if settings.tls_key is not None and settings.tls_cert is None:
        raise SettingsError(f"{PREFIX}TLS_KEY is set without {PREFIX}TLS_CERT.")
    if not settings.allow_insecure_no_auth and not is_loopback(settings.host):
        raise SettingsError(
            f"{PREFIX}HOST is {settings.host!r}, which other machines can reach, and no keys are set; "
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
