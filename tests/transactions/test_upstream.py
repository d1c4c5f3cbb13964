"""Answers as the client needs them."""

from onebook.transactions.failures import FailureReason
from onebook.transactions.upstream import Outcome, Reply, Then

BUSY = Outcome(FailureReason.EXCHANGE_ERROR, "Busy.", retryable=True)
WRONG = Outcome(FailureReason.AUTHENTICATION_FAILED, "Wrong key.", fatal=True)


def test_what_asking_again_may_cure_is_tried_again() -> None:
    assert BUSY.reply(503).then is Then.RETRY
    assert WRONG.reply(401).then is Then.RAISE


def test_a_failure_says_what_the_table_says_and_the_exchanges_code() -> None:
    failure = WRONG.failure(401)
    assert (failure.message, failure.exchange_code, failure.fatal) == ("Wrong key.", 401, True)
    assert BUSY.reply(503, server_ms=7).server_ms == 7


def test_a_reply_is_a_success_unless_it_says_otherwise() -> None:
    assert Reply(value=1).failure is None
