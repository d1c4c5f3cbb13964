"""Body models: exact for our responses, and one document entry for each status."""

import pytest
from pydantic import ValidationError

from onebook.api.bodies import (
    CODES,
    AuthenticateRequest,
    FailedProblem,
    NoSession,
    Problem,
    errors,
)
from onebook.errors import InvalidExchange, InvalidRequest, RequestTooLarge


def test_errors_of_one_status_are_one_entry_with_all_codes() -> None:
    found = errors(InvalidRequest, InvalidExchange, RequestTooLarge)
    assert {status: entry[CODES] for status, entry in found.items()} == {
        400: ["invalid_request", "invalid_exchange"],
        413: ["request_too_large"],
    }
    assert found[400]["model"] is Problem
    assert errors(InvalidRequest, model=FailedProblem)[400]["model"] is FailedProblem


def test_no_limit_that_a_setting_decides_is_printed() -> None:
    description = errors(RequestTooLarge)[413]["description"]
    assert not any(character.isdigit() for character in description)


@pytest.mark.parametrize("text", ["", "   ", "\n"])
def test_a_blank_key_is_none(text: str) -> None:
    with pytest.raises(ValidationError):
        AuthenticateRequest(api_key=text)


def test_an_answer_has_its_own_members_only_and_a_problem_may_have_more() -> None:
    with pytest.raises(ValidationError):
        NoSession(message="over", user_id="alice")  # type: ignore[call-arg]
    more = Problem(error="e", message="m", timestamp="t", supported_exchanges=["bybit"])  # type: ignore[call-arg]
    assert more.model_dump()["supported_exchanges"] == ["bybit"]
