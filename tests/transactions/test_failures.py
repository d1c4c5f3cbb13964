"""How reading a source can fail."""

from onebook.transactions.failures import FailureReason, SourceFailed


def test_a_failure_prints_its_sentence_alone() -> None:
    failure = SourceFailed(FailureReason.RATE_LIMITED, "Too many.", exchange_code=7)
    assert str(failure) == failure.message == "Too many."
    assert (failure.retryable, failure.fatal, failure.retry_after_s) == (False, False, None)


def test_codes_for_machines_are_stable() -> None:
    assert {reason.value for reason in FailureReason} == {
        "authentication_failed", "permission_denied", "rate_limited", "exchange_unreachable",
        "exchange_error", "unreadable_answer", "retry_budget_spent", "circuit_open",
        "no_credentials", "not_offered", "location_refused",
    }  # fmt: skip
