"""What an examination finds."""

from enum import StrEnum

from msgspec import Struct


class State(StrEnum):
    """How bad a finding is: a fault keeps the node from starting or from serving."""

    OK = "ok"
    WARNING = "warning"
    FAULT = "fault"


class Finding(Struct, frozen=True):
    """One thing that was looked at, how it is, and what to do where it is not well."""

    check: str
    state: State
    message: str
    advice: str = ""


def ok(check: str, message: str) -> Finding:
    """Nothing to do."""
    return Finding(check, State.OK, message)


def warning(check: str, message: str, advice: str) -> Finding:
    """It works, and should be better."""
    return Finding(check, State.WARNING, message, advice)


def fault(check: str, message: str, advice: str) -> Finding:
    """It does not work."""
    return Finding(check, State.FAULT, message, advice)
