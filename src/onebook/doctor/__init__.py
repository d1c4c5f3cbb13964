"""Examines an installation before a start or beside a running node: one advice per finding.

No file is made and no schema upgraded; one row of the database is written, the time of its last
write. `local` looks at this machine, `database` at the store and the secrets that belong to it,
`network` at what is reached over it.
"""

from onebook.doctor.database import database_findings
from onebook.doctor.findings import Finding, State
from onebook.doctor.local import local_findings
from onebook.doctor.network import network_findings

__all__ = ["Finding", "State", "database_findings", "local_findings", "network_findings"]
