"""Checks the facts stated by connectors over real connections to exchanges, and reports drift.

`run` follows some symbols of each exchange through its connector and the feeds of the service,
`observer` counts the traffic, `findings` turns the counts into findings, `forms` describes frames
without private data, and `report` is the document.
"""

from onebook.ops.livecheck.report import ExchangeReport, FindingKind, Grade, LiveFinding, LiveReport
from onebook.ops.livecheck.run import LiveCheck

__all__ = ["ExchangeReport", "FindingKind", "Grade", "LiveCheck", "LiveFinding", "LiveReport"]
