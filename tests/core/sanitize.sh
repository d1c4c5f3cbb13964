#!/usr/bin/env bash
# Runs the tests of what is compiled on a build with AddressSanitizer and UndefinedBehaviorSanitizer.
#
#     sanitize.sh [TEST FILE ...]
#
# FILES (7) files share a process, because it takes 4 s to start, and JOBS (2) run at a time, each at
# most LIMIT_S (420) seconds, so that a run ends and shows how far it is. All of it needs about 145 s
# of CPU, 95 if nothing is compiled. Tests of the versions in pure Python are left out. The build
# lives in build/sanitized, so that the one in place stays as it is and the next run compiles only
# what changed. Leaks are not looked for, because CPython frees little at its end; any other report
# ends this with an error.
set -euo pipefail

if [ "${1:-}" = --one ]; then  # a process of xargs below
    shift
    began=$SECONDS log="$(mktemp)"
    if timeout -k 10 "$LIMIT_S" env LD_PRELOAD="$SANITIZERS" PYTHONMALLOC=malloc \
        "$SANITIZED_PYTHON" -m pytest -n0 -q -s -p no:cacheprovider -k "$COMPILED" "$@" \
        >"$log" 2>&1; then
        echo "ok      $((SECONDS - began)) s  $*"
    else
        echo "FAILED  $((SECONDS - began)) s  $*, status $?"
        cat "$log"
        touch failed
    fi
    rm "$log"
    exit
fi

script="$(realpath "$0")"
root="$PWD" build="$PWD/build/sanitized"
SANITIZED_PYTHON="$(realpath -s "${PYTHON_BIN:-.venv/bin/python}")"
SANITIZERS="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)"
LIMIT_S="${LIMIT_S:-420}"
COMPILED="not reference] and not transport- and not nothing_is_compiled"
export SANITIZED_PYTHON SANITIZERS LIMIT_S COMPILED PYTHONPATH="$build/lib"
export ASAN_OPTIONS=detect_leaks=0:abort_on_error=0:exitcode=99:detect_stack_use_after_return=1
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1:exitcode=98
export ONEBOOK_SAMPLES="${ONEBOOK_SAMPLES:-$root/../shared/samples}"

mkdir -p "$build"
rm -rf "$build/tests" "$build/failed"
if [ -e "$build/lib" ]; then  # modules may have been removed; flags are in setup.py
    find "$build/lib" -type f \( ! -name '*.so' -o ! -newer setup.py \) -delete
fi
echo "compiling"
ONEBOOK_SANITIZE=1 "$SANITIZED_PYTHON" setup.py --quiet build --build-base "$build/objects" \
    --build-lib "$build/lib" >"$build/log" 2>&1 || { cat "$build/log"; exit 1; }
cp -r tests pyproject.toml "$build/"
cd "$build"
LD_PRELOAD="$SANITIZERS" PYTHONMALLOC=malloc "$SANITIZED_PYTHON" -c "
import onebook.core._core as core
assert core.__file__.startswith('$build'), core.__file__
print('sanitized core:', core.__file__)
"
if [ $# = 0 ]; then set -- tests/gateway/test_fanout.py tests/core/test_*.py; fi
printf '%s\n' "$@" | xargs -P "${JOBS:-2}" -n "${FILES:-7}" bash "$script" --one
[ ! -e failed ] || exit 1
echo "sanitize: no report"
