"""The cursors of an exchange that were followed through one query."""

from onebook.transactions.failures import FailureReason, SourceFailed


class Trail:
    """The way of one query from page to page.

    A cursor that comes again leads to rows that were read already, and those after them are out of
    reach: that is a failure, not the end of the query.

    Args:
        begin: The cursor to begin at; "" for the first page.
    """

    __slots__ = ("_seen", "cursor")

    def __init__(self, begin: str = "") -> None:
        self.cursor = begin
        self._seen = {begin}

    def follow(self, cursor: str) -> bool:
        """Go on to a page's cursor; False where it has none.

        Raises:
            SourceFailed: It was followed before.
        """
        if not cursor:
            return False
        if cursor in self._seen:
            raise SourceFailed(
                FailureReason.UNREADABLE,
                "The exchange repeated a cursor: what comes after this page cannot be read.",
                retryable=True,
            )
        self._seen.add(cursor)
        self.cursor = cursor
        return True
