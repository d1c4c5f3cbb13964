"""Errors have codes and statuses that HTTP and clients can rely on."""

import re
from http import HTTPStatus

import pytest

from onebook import errors
from onebook.errors import DatabaseUnavailable, OnebookError, file_problem, naming

ERRORS = [
    each
    for each in vars(errors).values()
    if isinstance(each, type) and issubclass(each, OnebookError)
]


@pytest.mark.parametrize("error", ERRORS)
def test_every_error_has_a_code_and_a_status_of_errors(error):
    assert re.fullmatch("[a-z]+(_[a-z]+)*", error.code)
    assert HTTPStatus(error.status) >= 400


def test_one_code_has_one_status():
    statuses = {}
    for each in ERRORS:
        assert statuses.setdefault(each.code, each.status) == each.status


def test_an_error_without_details_has_none_and_shares_none():
    one, other = OnebookError("A."), OnebookError("B.")
    one.details["symbol"] = "BTC/USDT"
    assert (other.details, other.headers, other.retry_after_s) == ({}, {}, None)
    assert str(one) == one.message == "A."


def test_clients_never_see_why_the_database_failed():
    error = DatabaseUnavailable("/srv/onebook.db is locked by host db1.")
    assert error.reason == "/srv/onebook.db is locked by host db1."
    assert "onebook.db" not in f"{error} {error.message} {error.details} {error!r}"
    assert (error.status, error.retry_after_s) == (503, 1.0)


def test_a_write_to_a_full_disk_names_its_file(tmp_path):
    with (
        pytest.raises(OSError, match="No space left") as caught,
        naming(tmp_path / "x"),
        open("/dev/full", "wb") as file,
    ):
        file.write(b"1")
    assert file_problem(caught.value) == f"Cannot use {tmp_path}/x: No space left on device."
