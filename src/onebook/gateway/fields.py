"""Field types that several server messages share."""

from typing import Annotated

from onebook.gateway.commands import about

Timestamp = Annotated[str, about("ISO 8601, UTC, microseconds.", "2026-11-20T10:00:00.000000Z")]
Text = Annotated[str, about("A sentence for people.")]
SubscriptionId = Annotated[
    str, about("Name of the view, the same for every client of it.", "sub_0123456789ab")
]
UpdateNumber = Annotated[int, about("One more for each update of the view.", 1)]
