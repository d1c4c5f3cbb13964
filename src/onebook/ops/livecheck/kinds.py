"""The kinds of findings: a code, how bad it is, and one sentence."""

from enum import StrEnum


class Grade(StrEnum):
    """How bad a finding is; notes leave the exit status at 0."""

    NOTE = "note"
    WARNING = "warning"
    FAULT = "fault"


class FindingKind(StrEnum):
    """A kind of finding; `grade` is how bad it is, `sentence` what it means."""

    grade: Grade
    sentence: str

    def __new__(cls, code: str, grade: Grade = Grade.NOTE, sentence: str = "") -> "FindingKind":
        """Make a code with its grade and sentence."""
        kind = str.__new__(cls, code)
        kind._value_ = code
        kind.grade = grade
        kind.sentence = sentence
        return kind

    LIST_UNREADABLE = (
        "list_unreadable",
        Grade.FAULT,
        "The instrument list could not be read, so that no book was followed.",
    )
    SYMBOL_MISSING = (
        "symbol_missing",
        Grade.WARNING,
        "The exchange does not trade this symbol.",
    )
    UNREACHABLE = (
        "unreachable",
        Grade.FAULT,
        "The connection was refused or could not be opened.",
    )
    CLOSED = "closed", Grade.WARNING, "The connection ended before the check did."
    CLOSE_ANNOUNCED = (
        "close_announced",
        Grade.NOTE,
        "The exchange announced that it will close the connection.",
    )
    FRAME_TOO_LARGE = (
        "frame_too_large",
        Grade.FAULT,
        "A frame is longer than feeds.frame_bytes_max, so that its book cannot start.",
    )
    REFUSED = "refused", Grade.FAULT, "The exchange refused a subscription."
    REQUEST_REFUSED = (
        "request_refused",
        Grade.FAULT,
        "The exchange refused a request that subscribes to no followed book, such as an "
        "unsubscription.",
    )
    SLOW_DOWN = "slow_down", Grade.WARNING, "The exchange asked for fewer requests."
    MAINTENANCE = "maintenance", Grade.WARNING, "The exchange does not match orders now."
    UNKNOWN_FRAMES = (
        "unknown_frames",
        Grade.WARNING,
        "Frames of a kind that the connector does not know.",
    )
    UNREADABLE_FRAMES = (
        "unreadable_frames",
        Grade.FAULT,
        "Frames or REST bodies that the connector cannot read.",
    )
    NEVER_LIVE = "never_live", Grade.FAULT, "The book did not become live."
    STALE = "stale", Grade.WARNING, "A book became stale."
    SILENT = "silent", Grade.WARNING, "No data came for a followed book."
    EMPTY_BOOK = (
        "empty_book",
        Grade.FAULT,
        "A live book has no level on a side.",
    )
    SAME_BOOK = (
        "same_book",
        Grade.FAULT,
        "Two symbols have the same book level by level: their orders would be counted twice.",
    )
    DIFFERS = (
        "differs",
        Grade.FAULT,
        "The live book differs from another snapshot of it.",
    )
    SLOWER = "slower", Grade.NOTE, "Data came less often than the connector states."
    NO_CONSEQUENCE = (
        "no_consequence",
        Grade.NOTE,
        "Frames of a followed book had neither data nor a meaning.",
    )
    CLOCK_SKEW = (
        "clock_skew",
        Grade.WARNING,
        "The exchange's times and this machine's clock differ, or its data is late.",
    )
    DEFECT = "defect", Grade.FAULT, "Processing a frame failed by a defect of Onebook."
