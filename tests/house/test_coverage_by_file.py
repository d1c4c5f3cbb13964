"""What a source file's own tests leave uncovered is found in recorded coverage."""

import subprocess
import sys
from pathlib import Path

import pytest

from house import coverage_by_file
from house.coverage_by_file import LESS, FileCoverage, covered_lines, function_lines, own_tests
from house.test_test_files import SOURCES

SOURCE = '''"""A module."""

LIMIT = 3


def judged(value):
    """Judge."""
    if value > LIMIT:
        return "over"
    result = "within"
    return result


class Counter:
    def count(self):
        return 1


def doubled(value):
    return 2 * value


TWICE = doubled(LIMIT)
'''
IN_FUNCTIONS = {8, 9, 10, 11, 16, 20}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data file as pytest-cov writes it, of a source and two tests that each run a part of it."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "part.py").write_text(SOURCE)
    tests = folder / "tests"
    tests.mkdir()
    (tests / "test_part.py").write_text("import part\ndef test_over(): part.judged(4)\n")
    (tests / "test_other.py").write_text("import part\ndef test_within(): part.judged(1)\n")
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "rc.ini").write_text("[run]\nbranch = true\n")
    subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "pytest_cov", "-c", "pytest.ini"),
            *("--rootdir=.", "--cov=part", "--cov-config=rc.ini", "--cov-context=test"),
            *("--cov-report=", "tests/test_part.py", "tests/test_other.py"),
        ],
        cwd=folder,
        check=True,
        env={"PYTHONPATH": str(folder), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    return folder


@pytest.fixture
def one_source(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(coverage_by_file, "SOURCES", recorded)
    monkeypatch.setattr(coverage_by_file, "own_tests", lambda source: ("test_part.py",))
    return recorded


def test_the_lines_of_functions_count_and_those_of_the_module_do_not() -> None:
    assert function_lines(SOURCE) == IN_FUNCTIONS


def test_a_line_is_covered_by_its_own_tests_and_at_import() -> None:
    contexts = {
        1: ["tests/a/test_b.py::test_c[1]|run"],
        2: ["tests/a/test_bc.py::test_c|run"],
        3: ["", "tests/a/test_bc.py::test_c|run"],
    }
    assert covered_lines(contexts, ("a/test_b.py",)) == {1, 3}


def test_what_another_file_s_tests_run_is_not_covered(one_source: Path) -> None:
    (found,) = coverage_by_file.measured(one_source / ".coverage", ["part.py"])
    assert found == FileCoverage("part.py", ("test_part.py",), covered=3, lines=6)
    assert found.share < coverage_by_file.SHARE_MIN


def test_a_low_share_fails_unless_the_table_has_it(
    one_source: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(coverage_by_file, "sources", lambda: ["part.py"])
    monkeypatch.setattr(sys, "argv", ["coverage_by_file.py", str(one_source / ".coverage")])

    def status(less: dict[str, str]) -> int:
        monkeypatch.setattr(coverage_by_file, "LESS", less)
        with pytest.raises(SystemExit) as ended:
            coverage_by_file.main()
        return int(ended.value.code or 0)

    assert status({}) == 1
    assert " 50% of   6 lines  part.py  by test_part.py" in capsys.readouterr().out
    assert status({"part.py": "Runs in a process of its own."}) == 0
    assert "Runs in a process of its own." in capsys.readouterr().out
    assert status({"part.py": "As it is.", "whole.py": "Is covered."}) == 1
    assert "take them out of LESS: whole.py" in capsys.readouterr().out


def test_of_a_folder_only_its_files_are_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["coverage_by_file.py", "--tests", "--of=http"])
    coverage_by_file.main()
    tests = capsys.readouterr().out.split()
    assert "tests/http/test_connection.py" in tests
    assert "tests/gateway/test_connection.py" not in tests
    assert coverage_by_file.within("http", ["http/a.py", "https/a.py"]) == ["http/a.py"]
    assert coverage_by_file.within("", ["a.py", "http/a.py"]) == ["a.py", "http/a.py"]


def test_a_short_body_is_not_judged() -> None:
    assert FileCoverage("a.py", (), covered=0, lines=3).share == 1.0
    assert FileCoverage("a.py", (), covered=1, lines=4).share == 0.25


def test_the_table_names_sources_with_reasons() -> None:
    for source, why in LESS.items():
        assert (SOURCES / source).exists(), source
        assert why.endswith(".")
        assert own_tests(source)
