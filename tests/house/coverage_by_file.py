"""Files that their own tests leave uncovered: `make coverage`, or `make coverage OF=gateway`.

    python tests/house/coverage_by_file.py --tests [--of FOLDER]    the test files to run
    python tests/house/coverage_by_file.py .coverage [--of FOLDER]  what they left uncovered

A source file's own tests are those that `test_test_files.py` gives it, and no others need to run.
Counted are the lines of its functions, because a module's other lines run whenever anything imports
it; a function that runs at import, to make a table, is covered by that. The data file must have
contexts: `make coverage` records one for each test.
"""

import argparse
import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from coverage import Coverage, CoverageData

sys.path.insert(0, str(Path(__file__).parents[1]))  # as pytest has it: tests import each other

from house.test_test_files import SOURCES, has_tests, own_test, rows_of, sources

SHARE_MIN = 0.7
LINES_MIN = 4  # a shorter function body is one branch: its share says nothing

# Files that their own tests cannot or need not reach further, with the reason.
IN_A_PROCESS = "Runs in processes of its own, which its tests start and do not measure."
LESS: Mapping[str, str] = {
    "app/node.py": IN_A_PROCESS,
    "app/process.py": IN_A_PROCESS,
    "app/reloading.py": IN_A_PROCESS,
    "cli/demo.py": IN_A_PROCESS,
    "cli/main.py": IN_A_PROCESS,
    "cli/serve.py": IN_A_PROCESS,
    "cli/top.py": "Its loop ends with Ctrl-C only; what each screen shows is tested as text.",
    "cli/watch.py": "Its full screen needs a terminal; what it shows is tested as text.",
    "library/tables.py": "Its tests are skipped where pandas and polars are not installed.",
    "workers/group.py": IN_A_PROCESS,
}


class FileCoverage(NamedTuple):
    """How much of a source file's functions its own tests run."""

    source: str
    tests: tuple[str, ...]
    covered: int
    lines: int

    @property
    def share(self) -> float:
        """Covered share of the lines; 1 where there are too few to judge."""
        return self.covered / self.lines if self.lines >= LINES_MIN else 1.0


def own_tests(source: str) -> tuple[str, ...]:
    """The test files that have to cover a source file."""
    own = (own_test(source),) if has_tests(own_test(source)) else ()
    named = (test for row in rows_of(source) for test in row.tests)
    return tuple(dict.fromkeys((*own, *named)))


def function_lines(text: str) -> set[int]:
    """Lines within functions, without their signatures and docstrings."""
    found = set[int]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            documented = ast.get_docstring(node) is not None
            for statement in node.body[documented:]:
                found.update(range(statement.lineno, (statement.end_lineno or 0) + 1))
    return found


def covered_lines(contexts: Mapping[int, Iterable[str]], tests: tuple[str, ...]) -> set[int]:
    """Lines that ran in a test of these files, or at import: what makes a module's tables.

    A context is `tests/<file>::<test>`, "" at import.
    """
    names = {"", *(f"tests/{each}" for each in tests)}
    return {
        line for line, ran in contexts.items() if any(each.split("::")[0] in names for each in ran)
    }


def measured(data_file: Path, files: Iterable[str] | None = None) -> Iterator[FileCoverage]:
    """The coverage of source files (all by default) by their own tests."""
    coverage = Coverage(data_file=str(data_file))
    coverage.load()
    data: CoverageData = coverage.get_data()
    for source in sources() if files is None else files:
        path = SOURCES / source
        _, statements, _, _ = coverage.analysis(str(path))
        lines = set(statements) & function_lines(path.read_text())
        tests = own_tests(source)
        ran = covered_lines(data.contexts_by_lineno(str(path)), tests)
        yield FileCoverage(source, tests, len(lines & ran), len(lines))


def within(folder: str, files: Iterable[str]) -> list[str]:
    """The files of a folder; all of them for ""."""
    return [each for each in files if not folder or each.startswith(f"{folder.rstrip('/')}/")]


def main() -> None:
    """Print what is covered too little; exit status 1 if the table does not list it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tests", action="store_true", help="print the test files to run")
    parser.add_argument("data_file", type=Path, nargs="?", default=Path(".coverage"))
    parser.add_argument("--of", default="", metavar="FOLDER", help="of this folder of the source")
    options = parser.parse_args()
    files = within(options.of, sources())
    if options.tests:
        print(*sorted({f"tests/{test}" for source in files for test in own_tests(source)}))
        return
    results = sorted(measured(options.data_file, files), key=lambda each: each.share)
    low = [each for each in results if each.share < SHARE_MIN]
    for each in low:
        why = LESS.get(each.source, "by " + ", ".join(each.tests))
        print(f"{each.share:4.0%} of {each.lines:3} lines  {each.source}  {why}")
    needless = {*within(options.of, LESS)} - {each.source for each in low}
    if needless:
        print("Covered well enough, take them out of LESS:", *sorted(needless))
    missing = [each.source for each in low if each.source not in LESS]
    print(f"{len(results)} files, {len(missing)} below {SHARE_MIN:.0%} by their own tests.")
    raise SystemExit(bool(missing or needless))


if __name__ == "__main__":
    main()
