"""Release check: build the sdist and the wheel, install each into an empty environment, use it.

    python tests/release/check.py            # everything
    python tests/release/check.py --quick    # what CI runs: one environment less

Each is installed alone first: the library and the client can be imported, `onebook exchanges list`
answers, and `onebook serve` says what to install. With the extra `server` it serves the demo:
health answers, a client receives books, SIGINT ends it with status 0. The sdist is installed with a
C compiler, on every Python that the machine has, and without one; the wheel is built from the
sdist, so `--quick` leaves out the sdist with a compiler.

Needs the package `build` and, once, the package index that pip is configured for.
"""

import argparse
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
STEP_TIMEOUT_S = 600
PYTHONS = (11, 12, 13)  # those of pyproject.toml's classifiers
DEMO_START_S = 60
DEMO_STOP_S = 20
WATCH_UPDATES = 3
# Generated or built for one machine; sources of extensions are of no use in a wheel.
NOT_IN_SDIST = (".c", ".so", ".o")
NOT_IN_WHEEL = (".c", ".h", ".pyx", ".pxd", ".pxi")


class Failed(Exception):
    """The release is not fit to publish; the message says why."""


def run(*words: str | Path, cwd: Path, **environment: str) -> str:
    """Run a command to its end; return its output."""
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=STEP_TIMEOUT_S,
    )
    if done.returncode:
        raise Failed(f"{' '.join(map(str, words))}: status {done.returncode}\n{done.stdout}")
    return done.stdout


def build(folder: Path) -> tuple[Path, Path]:
    """Build the sdist from a clean copy of the tree, and the wheel from the sdist."""
    copy = folder / "tree"
    names = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file() or (ROOT / name).is_symlink():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name, follow_symlinks=False)
    run(sys.executable, "-m", "build", "--outdir", folder / "dist", copy, cwd=folder)
    (sdist,) = (folder / "dist").glob("*.tar.gz")
    (wheel,) = (folder / "dist").glob("*.whl")
    return sdist, wheel


def check_contents(sdist: Path, wheel: Path) -> None:
    """The sdist holds every source file under src, the wheel nothing that only a compiler needs."""
    with tarfile.open(sdist) as archive:
        packed = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    tracked = set(run("git", "ls-files", "src", cwd=ROOT).split())
    links = {name for name in tracked if (ROOT / name).is_symlink()}  # packed as what they lead to
    if missing := sorted(tracked - links - packed):
        raise Failed(f"{sdist.name} lacks {', '.join(missing)}")
    if extra := sorted(name for name in packed if name.endswith(NOT_IN_SDIST)):
        raise Failed(f"{sdist.name} holds {', '.join(extra)}")
    names = zipfile.ZipFile(wheel).namelist()
    if "onebook/web/content/tutorial.md" not in names:
        raise Failed(
            f"{wheel.name} lacks the pages of docs/, to which src/onebook/web/content links"
        )
    if extra := sorted(name for name in names if name.endswith(NOT_IN_WHEEL)):
        raise Failed(f"{wheel.name} holds {', '.join(extra)}")


def check_installed(artifact: Path, folder: Path, python: str, *, compiled: bool) -> None:
    """Install into an empty environment, and use the installed package."""
    environment = {} if compiled else {"CC": "/bin/false"}
    run(python, "-m", "venv", folder / "venv", cwd=folder)
    programs = folder / "venv" / "bin"
    pip = (programs / "python", "-m", "pip", "install", "--quiet", "--no-compile")
    # A path of its own, or pip's cache would answer with what another compiler setting built.
    own = shutil.copy2(artifact, folder)
    run(*pip, own, cwd=folder, **environment)
    check_alone(programs, folder, compiled=compiled)
    run(*pip, f"{own}[server]", cwd=folder, **environment)
    check_demo(programs / "onebook", folder)


def check_alone(programs: Path, folder: Path, *, compiled: bool) -> None:
    """The library, the client and a trader's commands work without the packages of the server."""
    onebook, python = programs / "onebook", programs / "python"
    version = run(onebook, "--version", cwd=folder)
    if not re.fullmatch(r"onebook \d+\.\d+\.\d+\S*\n", version):
        raise Failed(f"onebook --version printed {version!r}")
    program = "import onebook.client; from onebook import core, order_book; print(core.COMPILED)"
    found = run(python, "-c", program, cwd=folder).strip()
    if found != str(compiled):
        raise Failed(f"the core is compiled: {found}, expected: {compiled}")
    if "binance" not in run(onebook, "exchanges", "list", cwd=folder):
        raise Failed("onebook exchanges list names no binance")
    served = subprocess.run(
        [onebook, "serve"], cwd=folder, capture_output=True, text=True, timeout=STEP_TIMEOUT_S
    )
    if served.returncode != 2 or "onebook[server]" not in served.stderr:
        raise Failed(f"onebook serve without the server: {served.returncode}\n{served.stderr}")


def pythons() -> list[str]:
    """The other supported Python versions on this machine."""
    ours = f"python3.{sys.version_info.minor}"
    names = [f"python3.{minor}" for minor in PYTHONS if f"python3.{minor}" != ours]
    works = [sys.executable, "-c", "import venv, ensurepip"]
    return [
        path
        for path in map(shutil.which, names)
        if path and not subprocess.run([path, *works[1:]], capture_output=True).returncode
    ]


def check_demo(onebook: Path, folder: Path) -> None:
    """The demo starts, health responds, a client receives books, SIGINT ends it."""
    with demo(onebook, folder) as (text, process):
        url = find(r"the API +(http://\S+)/api/v1/", text)
        key = find(r"a premium key +(ob_live_\w+)", text)
        with urllib.request.urlopen(f"{url}/api/v1/health", timeout=10) as health:
            body = health.read().decode()
        if '"healthy"' not in body:
            raise Failed(f"health answered {body}")
        words = ("watch", "BTC/USDT", "--url", url, "--updates", str(WATCH_UPDATES))
        book = run(onebook, *words, cwd=folder, ONEBOOK_KEY=key)
        if "spread" not in book:
            raise Failed(f"onebook watch printed no book:\n{book}")
        process.send_signal(signal.SIGINT)
        if status := process.wait(DEMO_STOP_S):
            raise Failed(f"the demo ended with status {status}")


@contextlib.contextmanager
def demo(onebook: Path, folder: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A running demo, and its output."""
    printed = folder / "demo.txt"
    with printed.open("w") as out:
        process = subprocess.Popen(
            [onebook, "demo", "--port", "0"], cwd=folder, stdout=out, stderr=out, text=True
        )
    try:
        deadline_s = time.monotonic() + DEMO_START_S
        while "Ctrl-C" not in (text := printed.read_text()):
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise Failed(f"the demo did not start:\n{text}")
            time.sleep(0.1)
        yield text, process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def find(pattern: str, text: str) -> str:
    """The first group of a pattern that must be there."""
    if (match := re.search(pattern, text)) is None:
        raise Failed(f"no {pattern!r} in:\n{text}")
    return match[1]


def main() -> None:
    """Run every step, with a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="leave out the sdist with a compiler")
    quick = parser.parse_args().quick
    with tempfile.TemporaryDirectory(prefix="onebook-release-") as name:
        folder = Path(name)
        began_s = time.monotonic()

        def say(what: str) -> None:
            print(f"[{time.monotonic() - began_s:5.1f} s] {what}", flush=True)

        say("build the sdist, and the wheel from it")
        sdist, wheel = build(folder)
        check_contents(sdist, wheel)
        installs = [(wheel, sys.executable, True), (sdist, sys.executable, False)]
        if not quick:
            installs += [(sdist, python, True) for python in (sys.executable, *pythons())]
        for number, (artifact, python, compiled) in enumerate(installs):
            how = "compiled" if compiled else "without a C compiler"
            say(f"install {artifact.name} with {Path(python).name}, {how}")
            place = folder / str(number)
            place.mkdir()
            check_installed(artifact, place, python, compiled=compiled)
        say("fit for release")


if __name__ == "__main__":
    try:
        main()
    except Failed as failed:
        sys.exit(f"release check: {failed}")
