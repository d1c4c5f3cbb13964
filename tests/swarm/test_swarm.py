"""Many clients, random actions, one truth: every update shows the true books.

`ONEBOOK_SWARMS` says how many seeds, or which (`120:140`).
"""

import os

import pytest

from swarm.swarm import Swarm

FIRST, _, END = os.environ.get("ONEBOOK_SWARMS", "4").rpartition(":")
ACTS = int(os.environ.get("ONEBOOK_SWARM_ACTS", "150"))


@pytest.mark.parametrize("seed", range(int(FIRST or 0), int(END)))
async def test_every_update_is_a_state_that_the_books_had(seed, tmp_path):
    assert await Swarm(seed, tmp_path, acts=ACTS).run() > 0
