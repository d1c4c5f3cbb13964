"""What a run needs beside Python: this project and its peers installed, three C programs compiled.

The project is installed from a copy of the tree as it is now, so that building leaves nothing in
the tree and never touches a development environment.
"""

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BENCH = ROOT / "bench"
VENV = ROOT / ".venv-bench"
NODE = BENCH / ".node"
PYTHON = VENV / "bin" / "python"
SOURCES = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "src")
PEERS = (
    "aiohttp", "ccxt==4.5.*", "cryptofeed==2.4.*", "httpx", "orjson", "picows", "pyarrow", "pytest",
    "uvicorn", "uvloop", "websockets",
)  # fmt: skip
NODE_PEERS = ("tardis-dev",)
SHOWN = (
    "onebook", "cryptofeed", "ccxt", "orjson", "msgspec", "picows", "uvicorn", "uvloop",
    "websockets", "isal",
)  # fmt: skip


class Unprepared(Exception):
    """Something a run cannot do without is missing."""


def prepare() -> None:
    """Make or refresh the environments."""
    if not PYTHON.exists():
        _run(sys.executable, "-m", "venv", VENV)
    _unless_done(VENV / ".peers", " ".join(PEERS), lambda: _pip(*PEERS))
    _unless_done(VENV / ".project", _digest(), _install_project)
    if shutil.which("npm"):
        _unless_done(NODE / ".peers", " ".join(NODE_PEERS), _install_node)


def _unless_done(mark: Path, state: str, work: Callable[[], None]) -> None:
    """Do the work unless the mark says that this state was reached before."""
    if mark.exists() and mark.read_text() == state:
        return
    work()
    mark.parent.mkdir(exist_ok=True)
    mark.write_text(state)


def _pip(*words: str) -> None:
    _run(PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *words)


def _install_project() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in SOURCES:
            source = ROOT / name
            if source.is_dir():
                built = shutil.ignore_patterns("*.so", "*.c", "__pycache__", "*.egg-info")
                shutil.copytree(source, Path(folder, name), ignore=built)
            elif source.exists():
                shutil.copy(source, folder)
        _pip("--force-reinstall", "--no-deps", folder)
        _pip(f"{folder}[server]")  # its dependencies
    compiled = "import onebook.core as core, sys; sys.exit(not core.COMPILED)"
    if subprocess.run([PYTHON, "-c", compiled], check=False).returncode:
        raise Unprepared("the core was not compiled; a C compiler and Python's headers are needed")


def _install_node() -> None:
    NODE.mkdir(exist_ok=True)
    _run("npm", "install", "--prefix", NODE, "--silent", "--no-audit", "--no-fund", *NODE_PEERS)


def _digest() -> str:
    """What the installed project was made of."""
    digest = hashlib.sha256()
    files = [ROOT / "pyproject.toml", ROOT / "setup.py", *sorted((ROOT / "src").rglob("*"))]
    for file in files:
        if file.suffix in {".py", ".pyx", ".pxd", ".pxi", ".h", ".toml"}:
            digest.update(str(file.relative_to(ROOT)).encode() + file.read_bytes())
    return digest.hexdigest()


def _run(*words: str | Path) -> None:
    done = subprocess.run(
        [str(word) for word in words], check=False, capture_output=True, text=True, cwd=BENCH
    )
    if done.returncode:
        raise Unprepared(f"{' '.join(map(str, words))} failed:\n{done.stderr.strip()[-2_000:]}")


@contextmanager
def variables(runs: int) -> Iterator[dict[str, str]]:
    """The environment of every benchmark, with the C programs compiled for this run."""
    with tempfile.TemporaryDirectory() as folder:
        programs = {name: Path(folder, name) for name in ("sink", "idlers", "floor.so")}
        compiler = os.environ.get("CC", "cc")
        for _name, program in programs.items():
            shared = ("-shared", "-fPIC") if program.suffix else ()
            source = BENCH / "macro" / f"{program.stem}.c"
            _run(compiler, "-O2", *shared, source, "-o", program)
        yield {
            **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            # In tests/ stands how ccxt is asked for the book of each exchange.
            "PYTHONPATH": os.pathsep.join(
                str(folder) for folder in (BENCH, BENCH / "micro", BENCH / "macro", ROOT / "tests")
            ),
            "PYTHONDONTWRITEBYTECODE": "1",
            "BENCH_RUNS": str(runs),
            "BENCH_SINK": str(programs["sink"]),
            "BENCH_IDLERS": str(programs["idlers"]),
            "BENCH_FLOOR": str(programs["floor.so"]),
            "TARDIS_ROOT": str(NODE / "node_modules"),
        }


def machine() -> dict[str, object]:
    """What the figures depend on."""
    return {
        "cores": os.cpu_count(),
        "model": _model(),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "load": os.getloadavg()[0],
        "versions": {"python": _python(), "node": _node(), **_versions()},
    }


def commit() -> str:
    """The short id of the commit, marked where the tree differs from it."""

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(ROOT), *words], check=False, capture_output=True, text=True
        )
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--", "src", "bench", "pyproject.toml", "setup.py")
    return (git("rev-parse", "--short=10", "HEAD") or "none") + ("+changes" if changed else "")


def _model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _python() -> str:
    return _answer(PYTHON, "-c", "import platform; print(platform.python_version())")


def _node() -> str:
    return _answer("node", "--version") if shutil.which("node") else "none"


def _versions() -> dict[str, str]:
    code = (
        "import sys, json; from importlib.metadata import version; "
        "print(json.dumps({name: version(name) for name in sys.argv[1:]}))"
    )
    return dict(json.loads(_answer(PYTHON, "-c", code, *SHOWN)))


def _answer(*words: str | Path) -> str:
    done = subprocess.run([str(each) for each in words], check=True, capture_output=True, text=True)
    return done.stdout.strip()
