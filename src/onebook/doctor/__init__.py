"""Diagnoses an installation before a start or beside a running node: one advice per finding.

Creates no files and upgrades no schema; one row of the database is written, the time of its last
write. `local` checks this machine, `database` the store and its secrets, `cluster` NATS and the
other nodes, `network` the port and the exchanges.
"""

from onebook.doctor.cluster import cluster_findings
from onebook.doctor.database import database_findings
from onebook.doctor.findings import Finding, Severity
from onebook.doctor.local import local_findings
from onebook.doctor.network import network_findings

__all__ = [
    "Finding",
    "Severity",
    "cluster_findings",
    "database_findings",
    "local_findings",
    "network_findings",
]
