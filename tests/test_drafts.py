"""Drafts of backups: locked while their process lives, abandoned when it was killed."""

import asyncio
import sys
from pathlib import Path

from onebook.drafts import abandoned, draft, remove_abandoned

HOLDER = """
import sys
from pathlib import Path
from onebook.drafts import draft
with draft(Path(sys.argv[1])) as place:
    (place / "pepper").touch()
    print(place, flush=True)
    sys.stdin.read()
"""


async def test_a_draft_is_abandoned_once_its_process_was_killed(tmp_path: Path) -> None:
    holder = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", HOLDER, str(tmp_path)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert holder.stdout is not None
    place = Path((await holder.stdout.readline()).decode().strip())
    remove_abandoned(tmp_path)
    assert (abandoned(tmp_path), (place / "pepper").exists()) == ([], True)
    holder.kill()
    await holder.wait()
    assert abandoned(tmp_path) == [place]
    remove_abandoned(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_draft_ends_with_its_block_and_a_folder_without_a_lock_is_abandoned(
    tmp_path: Path,
) -> None:
    with draft(tmp_path) as place:
        assert abandoned(tmp_path) == []
    assert not place.exists()
    place.mkdir()
    assert abandoned(tmp_path) == [place]
    assert abandoned(tmp_path / "nowhere") == []
