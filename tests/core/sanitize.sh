#!/usr/bin/env bash
# Runs the tests of what is compiled on a build with AddressSanitizer and UndefinedBehaviorSanitizer.
#
# The build lives in a directory of its own, so that the one in place stays as it is. Leaks are not
# looked for, because CPython frees little at its end; any other report ends this with an error.
set -euo pipefail

python="${PYTHON_BIN:-.venv/bin/python}"
python="$(realpath -s "$python")"
build="$(mktemp -d)"
trap 'rm -rf "$build"' EXIT

ONEBOOK_SANITIZE=1 "$python" setup.py --quiet build --build-base "$build/objects" \
    --build-lib "$build/lib" >"$build/log" 2>&1 || { cat "$build/log"; exit 1; }
cp -r tests "$build/tests"
cp pyproject.toml "$build/"

libasan="$(gcc -print-file-name=libasan.so)"
libubsan="$(gcc -print-file-name=libubsan.so)"
export ONEBOOK_SAMPLES="${ONEBOOK_SAMPLES:-$PWD/../shared/samples}"
cd "$build"
run() {
    LD_PRELOAD="$libasan $libubsan" PYTHONPATH="$build/lib" PYTHONMALLOC=malloc \
        ASAN_OPTIONS=detect_leaks=0:abort_on_error=0:exitcode=99:detect_stack_use_after_return=1 \
        UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1:exitcode=98 "$python" "$@"
}

run -c "
import onebook.core._core as core
assert core.__file__.startswith('$build'), core.__file__
print('sanitized core:', core.__file__)
"
run -m pytest tests/core tests/gateway/test_fanout.py -q -s -p no:cacheprovider
echo "sanitize: no report"
