"""Tests that need their own process: the modules that an import loads, and a full disk."""

import json
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import json, resource, sys
from pathlib import Path

import onebook
lazy = "onebook.library" not in sys.modules and "httpx" not in sys.modules
onebook.order_book
server = [name for name in sys.modules if name in (
    "fastapi", "uvicorn", "sqlalchemy", "typer", "websockets", "onebook.app", "onebook.gateway",
    "onebook.store", "onebook.web", "onebook.api", "onebook.simulator", "pandas", "polars",
)]
try:
    onebook.no_such_name
except AttributeError as error:
    unknown = str(error)

import logging
from onebook.exchanges import EXCHANGES
from onebook.feeds.recording import read
from onebook.library.recorders import Recorders

okx = EXCHANGES["okx"]
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
folder = Path(sys.argv[1])
logging.basicConfig()
recorders = Recorders(folder, ["okx"], epoch_s=1e9)
file = recorders.files["okx"]
file.opened(okx.ws_url, 1.0)
before = file.problem
for number in range(5_000):
    file.frame_in(okx.ws_url, 2.0, b'{"a frame":"%0100d"}' % number)
recorders.close()
print(json.dumps({
    "lazy": lazy, "server": server, "unknown": unknown, "names": dir(onebook),
    "before": before, "problem": file.problem, "bytes": (folder / "okx.rec").stat().st_size,
}))
"""


def test_an_import_is_lazy_and_loads_no_server_and_a_full_disk_ends_a_recording(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "recording")],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["lazy"]
    assert found["server"] == []
    assert found["unknown"] == "module 'onebook' has no attribute 'no_such_name'"
    assert {"order_book", "order_books", "replay", "__version__"} <= set(found["names"])
    assert found["before"] == ""
    file = tmp_path / "recording" / "okx.rec"
    assert found["problem"] == f"{file} cannot be written: File too large."
    assert f"The recording ended: {file} cannot be written" in done.stderr
    assert 0 < found["bytes"] <= 200_000
    assert "Traceback" not in done.stderr
