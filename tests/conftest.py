"""What all tests share: the recorded samples and the property tests' profile."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["leaks"]

SAMPLES = Path(os.environ.get("ONEBOOK_SAMPLES", Path(__file__).parents[2] / "shared" / "samples"))

# Deterministic: the same examples in every run; `HYPOTHESIS_PROFILE=explore` looks for new ones.
settings.register_profile(
    "ci", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", deadline=None, print_blob=True, max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(scope="session")
def samples() -> Path:
    """The folder of recorded bytes; tests that need it skip where it is absent."""
    if not SAMPLES.is_dir():
        pytest.skip("the recorded samples are not beside the repository (ONEBOOK_SAMPLES)")
    return SAMPLES


def pytest_make_parametrize_id(val: object) -> str | None:
    """Bytes are not part of a test's name: those of gzip hold the second in which they were made,
    and workers that collect in different seconds would not agree on what the tests are."""
    return "bytes" if isinstance(val, bytes) else None
