"""The state of a node in the word that `/api/v1/health` uses."""

import pytest

from onebook.api.services import HealthFacts


@pytest.mark.parametrize(
    ("facts", "word"),
    [
        (HealthFacts(ready=True), "healthy"),
        (HealthFacts(ready=True, active_exchanges=3), "healthy"),
        (HealthFacts(ready=False), "degraded"),
        (HealthFacts(ready=True, problems=("The database does not answer.",)), "degraded"),
        (HealthFacts(ready=True, draining=True), "draining"),
        (HealthFacts(ready=False, draining=True, problems=("x",)), "draining"),
    ],
)
def test_draining_comes_before_degraded_before_healthy(facts: HealthFacts, word: str) -> None:
    assert facts.status == word
