"""Fixtures of all tests: the recorded samples and Hypothesis' profile."""

import gc
import os
import signal
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["durations", "families", "leaks", "preloaded", "web.browser"]

# A shell starts what it puts in the background with Ctrl-C ignored, and processes of tests would
# inherit that: https://pubs.opengroup.org/onlinepubs/9799919799/utilities/V3_chap02.html#tag_19_11
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# httpx looks for this package at each request to an ASGI application, in every folder of the path.
if find_spec("sniffio") is None:
    sys.modules["sniffio"] = None  # type: ignore[assignment]

SAMPLES = Path(os.environ.get("ONEBOOK_SAMPLES", Path(__file__).parents[2] / "shared" / "samples"))

# Deterministic: the same examples in every run. `HYPOTHESIS_PROFILE=nightly` looks for new ones, as
# `make soak-dev` does, and `explore` for longer.
settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("nightly", deadline=None, print_blob=True, max_examples=200)
settings.register_profile("explore", deadline=None, print_blob=True, max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_sessionstart() -> None:
    """Freeze collected objects, so that the garbage collector skips them."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def samples() -> Path:
    """The folder of recorded samples; tests that need it are skipped if it is absent."""
    if not SAMPLES.is_dir():
        pytest.skip("the recorded samples are not beside the repository (ONEBOOK_SAMPLES)")
    return SAMPLES


def pytest_make_parametrize_id(val: object) -> str | None:
    """Bytes are not part of a test's name: those of gzip hold the second in which they were made,
    and workers that collect in different seconds would not agree on what the tests are."""
    return "bytes" if isinstance(val, bytes) else None
