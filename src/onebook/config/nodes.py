"""Settings of several nodes as one service."""

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr

from onebook.config.section import Section


class NatsSettings(Section):
    """How nodes reach NATS; not used by a node of the role all."""

    servers: tuple[str, ...] = ("nats://127.0.0.1:4222",)
    """Addresses, such as nats://HOST:4222 or tls://HOST:4222; several of one cluster."""
    user: str = ""
    """User name, if NATS requires one."""
    password: SecretStr = SecretStr("")
    """Password of the user."""
    token: SecretStr = SecretStr("")
    """Token, if NATS requires one."""
    credentials_file: Path | None = None
    """File of a NATS account (.creds) with its JWT and seed."""
    tls_ca_file: Path | None = None
    """PEM certificates that NATS' own must be signed by; none: those of the system."""
    tls_cert_file: Path | None = None
    """PEM certificate of this node, if NATS requires one."""
    tls_key_file: Path | None = None
    """PEM private key of that certificate."""
    connect_timeout_s: float = Field(10.0, ge=0.1, le=300)
    """A node that cannot connect for so long at its start gives up."""
    embedded_port: int = Field(0, ge=0, le=65_535)
    """Port on 127.0.0.1 of the nats-server that `node.workers` starts; 0 takes a free one."""
    outbox_bytes_max: int = Field(16 << 20, ge=1 << 20, le=1 << 30)
    """Messages that may wait to be written to NATS; more are dropped and sent again on request."""


class NodeSettings(Section):
    """Several nodes as one service: docs/guides/many-nodes.md."""

    role: Literal["all", "feeds", "gateway"] = "all"
    """feeds: connections to exchanges; gateway: clients; all: both in one process, without NATS."""
    workers: int = Field(0, ge=0, le=256)
    """Gateway processes behind one port, with a feeds process and, unless nats.servers is set, a
    nats-server of their own; 0: one process."""
    restart_delay_max_s: float = Field(30.0, ge=0.1, le=3_600)
    """The longest wait before a process of `workers` that ended is started again."""
    name: str = Field("", max_length=64, pattern=r"^[ -~]*$")
    """What operators call this node; none: its host name and process."""
    cluster: str = Field("onebook", min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")
    """Nodes of one name work together; the first token of every NATS subject."""
    heartbeat_interval_s: float = Field(0.2, ge=0.02, le=10)
    """Interval of a node's heartbeats."""
    heartbeat_timeout_s: float = Field(1.0, ge=0.1, le=60)
    """A node without a heartbeat for so long is dead: its books are stale on every gateway."""
    isolated_s: float = Field(5.0, ge=0.1, le=600)
    """Seconds without NATS before a gateway sends its clients away and accepts no new ones, and a
    feeds node closes its connections to exchanges. Restarts of NATS should take less."""
    handover_max_s: float = Field(10.0, ge=0, le=600)
    """How long a book that moves is kept open for the other node to have it live."""
    linger_s: float = Field(10.0, ge=0, le=86_400)
    """How long a gateway follows a book that no client is subscribed to any more; feeds nodes
    keep it for feeds.linger_s after that."""
    request_timeout_s: float = Field(1.0, ge=0.05, le=60)
    """A request to another node must be answered after so long."""
    snapshot_retry_s: float = Field(0.1, ge=0.01, le=60)
    """How often a snapshot of a book that is not in sync is asked for."""
    held_messages_max: int = Field(2_000, ge=1, le=1_000_000)
    """Messages of one book that are held while its snapshot is on the way."""
