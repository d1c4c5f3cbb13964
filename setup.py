"""Build what is compiled; everything else is in pyproject.toml.

The extensions are optional: without a C compiler the install goes on, and the exact pure-Python
versions do the same work, slower. `ONEBOOK_SANITIZE=1` adds ASan and UBSan (see `make sanitize`).
"""

import os
from glob import glob

from setuptools import Extension, setup

CORE = "src/onebook/core"
GATEWAY = "src/onebook/gateway"
# Python's own flags ask for debug information: a fifth of the time, nine tenths of the size. gcc's
# own limits of inlining are kept: with higher ones the core compiled four times as long, and read
# and merged books no faster.
COMPILE = ["-O3", "-g0", "-fno-strict-aliasing", "-Wno-unused-function", "-Wno-unreachable-code"]
LINK: list[str] = []
if os.environ.get("ONEBOOK_SANITIZE"):
    COMPILE = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-omit-frame-pointer"]
    LINK = ["-fsanitize=address,undefined"]
# The core checks its own bounds and divides as C does; a method that is no `CyFunction` is cheaper
# to call, and nobody needs its signature at run time.
DIRECTIVES = {
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
    "binding": False,
}


def extensions() -> list[Extension]:
    """What is compiled, all of it optional; nothing where Cython is missing."""
    core = Extension(
        "onebook.core._core",
        [f"{CORE}/_core.pyx"],
        depends=sorted(glob(f"{CORE}/*.px[di]") + glob(f"{CORE}/*.h")),
        extra_compile_args=COMPILE,
        extra_link_args=LINK,
    )
    sender = Extension(
        "onebook.gateway._direct",
        [f"{GATEWAY}/_direct.pyx"],
        extra_compile_args=COMPILE,
        extra_link_args=LINK,
    )
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    built = cythonize(
        [core, sender],
        language_level=3,
        include_path=["src"],
        compiler_directives=DIRECTIVES,
    )
    for extension in built:
        extension.optional = True  # cythonize forgets it where it was said before
    return built


setup(ext_modules=extensions())
