"""What an examination finds."""

from enum import StrEnum

from msgspec import Struct


class Severity(StrEnum):
    """How bad a finding is: a fault keeps the node from starting or from serving."""

    OK = "ok"
    WARNING = "warning"
    FAULT = "fault"


class Finding(Struct, frozen=True):
    """Result of one check: the state, and what to do if it is not well."""

    check: str
    state: Severity
    message: str
    advice: str = ""


def ok(check: str, message: str) -> Finding:
    """Nothing to do."""
    return Finding(check, Severity.OK, message)


def warning(check: str, message: str, advice: str) -> Finding:
    """It works, and should be better."""
    return Finding(check, Severity.WARNING, message, advice)


def fault(check: str, message: str, advice: str) -> Finding:
    """It does not work."""
    return Finding(check, Severity.FAULT, message, advice)
