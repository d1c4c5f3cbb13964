"""Settings of the HTTP server, of the REST API and of the logs."""

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr

from onebook.config.section import Section


class ServerSettings(Section):
    """Listening sockets, TLS and HTTP limits."""

    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 for all interfaces."""
    port: int = Field(8000, ge=0, le=65_535)
    """TCP port of REST and WebSocket; 0: any free port."""
    port_shared: bool = False
    """Whether other processes of the same user may listen on the port too (SO_REUSEPORT); set
    automatically for the gateways of `node.workers`."""
    metrics_host: str = "127.0.0.1"
    """Address of `/metrics` if `metrics_port` is set; plain HTTP."""
    metrics_port: int | None = Field(None, ge=0, le=65_535)
    """Separate TCP port of `/metrics`; the public port then answers 404. Default: the public port,
    restricted to requests from this machine or with `metrics_token`."""
    metrics_token: SecretStr = SecretStr("")
    """Bearer token required of other machines for `/metrics`; empty: no token."""
    tls_cert_file: Path | None = None
    """PEM certificate chain; together with `tls_key_file` it enables HTTPS and WSS."""
    tls_key_file: Path | None = None
    """PEM private key of the certificate."""
    http_connections_max: int = Field(1_000, ge=1, le=1_000_000)
    """Sockets for HTTP, in addition to `gateway.connections_max`."""
    probe_connections_max: int = Field(16, ge=0, le=1_000)
    """Additional sockets reserved for this machine and trusted proxies, so that health checks reach
    a full node."""
    header_timeout_s: float = Field(10.0, ge=0.001, le=3_600)
    """Maximum seconds to receive the TLS handshake, request line and headers."""
    body_timeout_s: float = Field(30.0, ge=0.001, le=3_600)
    """Maximum seconds to receive the request body after the headers."""
    write_timeout_s: float = Field(30.0, ge=0.001, le=3_600)
    """Seconds without write progress before the connection is closed."""
    keep_alive_timeout_s: int = Field(5, ge=1, le=3_600)
    """Seconds an idle HTTP connection is kept open."""
    files_reserve: int = Field(256, ge=64, le=100_000)
    """File descriptors reserved for everything but client sockets: feeds, the database, logs."""


class ApiSettings(Section):
    """The REST API."""

    public_url: str = ""
    """Public URL of the service, such as https://books.example; empty: derived from each
    request."""
    cors_origins: tuple[str, ...] = ()
    """Origins whose web pages may call the API (CORS); empty: none."""
    body_bytes_max: int = Field(65_536, ge=1_024, le=16 << 20)
    """Largest request body."""


class LogSettings(Section):
    """Logging."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level that is logged."""
    format: Literal["auto", "json", "text"] = "auto"
    """json: one object per line; text: human-readable; auto: text on a terminal, otherwise json."""
    access: bool = True
    """Whether every HTTP response and every closed connection is logged (logger
    `onebook.access`)."""
