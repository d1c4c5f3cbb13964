"""Settings of the HTTP server, of the REST API and of the logs."""

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr

from onebook.config.section import Section


class ServerSettings(Section):
    """Where the service listens and how it stops."""

    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 for all."""
    port: int = Field(8000, ge=0, le=65_535)
    """TCP port of REST and WebSocket; 0 takes a free one."""
    port_shared: bool = False
    """Whether other processes of this user may listen on the port too (SO_REUSEPORT); set for the
    gateways of `node.workers`."""
    metrics_host: str = "127.0.0.1"
    """Address of `/metrics` where `metrics_port` is set; plain HTTP."""
    metrics_port: int | None = Field(None, ge=0, le=65_535)
    """TCP port of `/metrics`, which the public port then answers with 404; none: the same port,
    but only to this machine or with `metrics_token`."""
    metrics_token: SecretStr = SecretStr("")
    """Bearer token that `/metrics` requires of all but this machine; empty: none."""
    tls_cert_file: Path | None = None
    """PEM certificate chain; with `tls_key_file` the service speaks HTTPS and WSS itself."""
    tls_key_file: Path | None = None
    """PEM private key of the certificate."""
    http_connections_max: int = Field(1_000, ge=1, le=1_000_000)
    """Sockets that may speak HTTP while all of `gateway.connections_max` are taken."""
    probe_connections_max: int = Field(16, ge=0, le=1_000)
    """Sockets beside these for this machine and trusted proxies: health checks of a full node."""
    header_timeout_s: float = Field(10.0, ge=0.001, le=3_600)
    """A request's line and headers, and the TLS handshake before, must be there after so long."""
    body_timeout_s: float = Field(30.0, ge=0.001, le=3_600)
    """The body must be there so long after the headers."""
    write_timeout_s: float = Field(30.0, ge=0.001, le=3_600)
    """A client that reads nothing of its answer for so long is cut off."""
    keep_alive_timeout_s: int = Field(5, ge=1, le=3_600)
    """An HTTP connection without a request is closed after so long."""
    files_reserve: int = Field(256, ge=64, le=100_000)
    """Open files beside the sockets of clients: feeds, the database, logs."""


class ApiSettings(Section):
    """How the REST API presents itself."""

    public_url: str = ""
    """The address clients use, such as https://books.example; empty: taken from the request."""
    cors_origins: tuple[str, ...] = ()
    """Origins whose pages may call us from a browser; empty: none."""
    body_bytes_max: int = Field(65_536, ge=1_024, le=16 << 20)
    """The largest request body."""


class LogSettings(Section):
    """What is logged, and how."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Least level that is written."""
    format: Literal["auto", "json", "text"] = "auto"
    """json: one object a line; text: for people; auto: text on a terminal, json elsewhere."""
    access: bool = True
    """Whether each answered request and each ended connection is logged, as `onebook.access`."""
