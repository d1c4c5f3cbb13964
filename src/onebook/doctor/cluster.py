"""Checks of a cluster: whether NATS takes this node's connection, and which nodes are alive there.

Listens only: no heartbeat is sent, so running nodes do not see the examination.
"""

from collections.abc import Sequence

from onebook.config import Settings
from onebook.doctor.findings import Finding, fault, ok, warning
from onebook.errors import ConfigError
from onebook.nodes import wire
from onebook.nodes.membership import NodeHeartbeat, NodeRole, NodeState
from onebook.nodes.nats import NatsBus
from onebook.nodes.presence import listen

NATS_ADVICE = "Check nats.servers, the login and the certificates, and that nats-server runs."


async def cluster_findings(settings: Settings) -> list[Finding]:
    """Examine NATS and the nodes of the cluster; nothing where this is the only node."""
    if settings.node.role == "all":
        return []
    try:
        async with NatsBus(settings.nats, name="onebook doctor") as bus:
            nodes = await listen(bus, settings.node)
    except ConfigError as error:
        return [fault("nats", error.message, NATS_ADVICE)]
    return [ok("nats", "NATS accepts this node."), *_nodes(nodes, settings.node.cluster)]


def _nodes(nodes: Sequence[NodeHeartbeat], cluster: str) -> list[Finding]:
    alive = [each for each in nodes if each.state is not NodeState.GONE]
    others = [each for each in alive if each.wire != wire.VERSION]
    feeds = [each for each in alive if each.role is NodeRole.FEEDS and each not in others]
    found = [
        warning(
            "nodes",
            f"{each.name} (Onebook {each.version}) speaks version {each.wire} of the node "
            f"protocol, this release {wire.VERSION}: neither uses the other.",
            "Finish the upgrade: docs/guides/many-nodes.md has the order.",
        )
        for each in others
    ]
    if not feeds:
        found.append(
            warning(
                "nodes",
                f"No feeds node of the cluster {cluster} that this release can use is alive.",
                "Start one (onebook serve --role feeds), or correct node.cluster.",
            )
        )
    gateways = len(alive) - len(others) - len(feeds)
    counts = f"feeds nodes {len(feeds)}, gateways {gateways}"
    return found or [ok("nodes", f"Alive in the cluster {cluster}: {counts}.")]
