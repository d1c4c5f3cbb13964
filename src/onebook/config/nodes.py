"""Settings of several nodes as one service."""

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr

from onebook.config.section import Section


class NatsSettings(Section):
    """Connection to NATS; not used with `node.role = "all"`."""

    servers: tuple[str, ...] = ("nats://127.0.0.1:4222",)
    """URLs of the NATS servers of one cluster, such as nats://HOST:4222 or tls://HOST:4222."""
    user: str = ""
    """User name, if NATS requires one."""
    password: SecretStr = SecretStr("")
    """Password of the user."""
    token: SecretStr = SecretStr("")
    """Token, if NATS requires one."""
    credentials_file: Path | None = None
    """Credentials file (.creds) with the JWT and seed of a NATS user."""
    tls_ca_file: Path | None = None
    """PEM file of the certificate authorities that NATS' certificate is verified against. Default:
    those of the system."""
    tls_cert_file: Path | None = None
    """PEM client certificate, if NATS requires one."""
    tls_key_file: Path | None = None
    """PEM private key of the client certificate."""
    connect_timeout_s: float = Field(10.0, ge=0.1, le=300)
    """Seconds a starting node tries to connect to NATS before it exits."""
    embedded_port: int = Field(0, ge=0, le=65_535)
    """Port on 127.0.0.1 of the nats-server that `node.workers` starts; 0: any free port."""
    outbox_bytes_max: int = Field(16 << 20, ge=1 << 20, le=1 << 30)
    """Bytes queued for NATS; further messages are dropped, and gateways request a new snapshot."""


class NodeSettings(Section):
    """Several nodes as one service: docs/guides/many-nodes.md."""

    role: Literal["all", "feeds", "gateway"] = "all"
    """feeds: connects to exchanges; gateway: serves clients; all: both in one process, without
    NATS."""
    workers: int = Field(0, ge=0, le=256)
    """Gateway processes behind one port. They share one feeds process and one nats-server (none is
    started if nats.servers is set). 0: everything in one process."""
    restart_delay_max_s: float = Field(30.0, ge=0.1, le=3_600)
    """Longest wait before a worker process that has exited is restarted."""
    name: str = Field("", max_length=64, pattern=r"^[ -~]*$")
    """Name of this node in logs and status; empty: host name and process id."""
    cluster: str = Field("onebook", min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")
    """Name shared by all nodes of one service: the first token of every NATS subject."""
    heartbeat_interval_s: float = Field(0.2, ge=0.02, le=10)
    """Seconds between heartbeats of a node."""
    heartbeat_timeout_s: float = Field(1.0, ge=0.1, le=60)
    """Seconds without a heartbeat before a node is considered dead and its books are stale on every
    gateway."""
    isolated_s: float = Field(5.0, ge=0.1, le=600)
    """Seconds without NATS before a gateway disconnects its clients and accepts no new ones, and a
    feeds node closes its connections to exchanges. Choose it longer than a restart of NATS."""
    handover_max_s: float = Field(10.0, ge=0, le=600)
    """Seconds a book that moves to another node is kept open until it is live there."""
    linger_s: float = Field(10.0, ge=0, le=86_400)
    """Seconds a gateway follows a book after its last subscriber has left; feeds nodes then keep it
    for feeds.linger_s."""
    request_timeout_s: float = Field(1.0, ge=0.05, le=60)
    """Timeout of a request to another node."""
    snapshot_retry_s: float = Field(0.1, ge=0.01, le=60)
    """Seconds between snapshot requests for a book that is out of sync."""
    held_messages_max: int = Field(2_000, ge=1, le=1_000_000)
    """Messages per book that are buffered until its snapshot arrives."""
