"""Settings of the broker, read from `TOPICS_*` environment variables."""

from broker.settings.environment import PREFIX
from broker.settings.settings import (
    Advertised,
    HttpServer,
    LogFormat,
    LogLevel,
    OnStorageFailed,
    Settings,
    SettingsError,
    described,
    is_loopback,
    load,
)

__all__ = [
    "PREFIX",
    "Advertised",
    "HttpServer",
    "LogFormat",
    "LogLevel",
    "OnStorageFailed",
    "Settings",
    "SettingsError",
    "described",
    "is_loopback",
    "load",
]
