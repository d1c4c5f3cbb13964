"""Build what is compiled; everything else is in pyproject.toml.

Both extensions are optional: without a C compiler the install goes on, and the exact pure-Python
twins do the same work, slower. `ONEBOOK_SANITIZE=1` adds ASan and UBSan (see `make sanitize`).
"""

import os
from glob import glob

from setuptools import Extension, setup

CORE = "src/onebook/core"
GATEWAY = "src/onebook/gateway"
COMPILE = ["-O3", "-fno-strict-aliasing", "-Wno-unused-function", "-Wno-unreachable-code"]
LINK: list[str] = []
if os.environ.get("ONEBOOK_SANITIZE"):
    COMPILE = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-omit-frame-pointer"]
    LINK = ["-fsanitize=address,undefined"]
# The core checks its own bounds and divides as C does.
DIRECTIVES = {
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
}


def extensions() -> list[Extension]:
    """The core and the gateway's last step, both optional; none where Cython is missing."""
    core = Extension(
        "onebook.core._core",
        [f"{CORE}/_core.pyx"],
        depends=sorted(glob(f"{CORE}/*.px[di]")),
        extra_compile_args=COMPILE,
        extra_link_args=LINK,
    )
    direct = Extension(
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
        [core, direct], language_level=3, include_path=["src"], compiler_directives=DIRECTIVES
    )
    for extension in built:
        extension.optional = True  # cythonize forgets it where it was said before
    return built


setup(ext_modules=extensions())
