"""The workflows parse, run commands that exist, and have no more rights than they need."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
yaml = pytest.importorskip("yaml", reason="pyyaml is in the dependency group `dev`")

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
READ_ONLY = {"contents": "read"}

every_workflow = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)


def jobs(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text())["jobs"]
    return found


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in jobs(path).values() for step in job.get("steps", ())]


def test_these_are_the_workflows() -> None:
    assert [path.stem for path in WORKFLOWS] == ["check", "nightly", "release", "wheels"]


@every_workflow
def test_each_command_of_make_exists(path: Path) -> None:
    for step in steps(path):
        for words in re.findall(r"^make (.+)", step.get("run", ""), re.MULTILINE):
            named = {word for word in words.split() if "=" not in word and "$" not in word}
            assert named - set("{}") <= TARGETS | {"{{", "}}", "matrix.target"}


def test_each_target_of_the_night_exists() -> None:
    (job,) = jobs(ROOT / ".github/workflows/nightly.yml").values()
    targets = set(job["strategy"]["matrix"]["target"])
    assert targets <= TARGETS
    assert {name for name in TARGETS if name.startswith("soak-")} <= targets


def test_the_suite_runs_on_each_python_that_is_promised() -> None:
    promised = [
        line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)
    ]
    job = jobs(ROOT / ".github/workflows/check.yml")["test"]
    assert job["strategy"]["matrix"]["python"] == promised
    kept = [step for step in job["steps"] if "upload-artifact" in step.get("uses", "")]
    assert kept[0]["if"] == "always()"
    assert kept[0]["with"]["path"].startswith("build/test-costs")


@every_workflow
def test_rights_are_those_that_are_needed(path: Path) -> None:
    assert yaml.safe_load(path.read_text())["permissions"] == READ_ONLY
    for name, job in jobs(path).items():
        wanted = {"id-token": "write"} if name == "publish" else READ_ONLY
        assert job.get("permissions", READ_ONLY) == wanted
        assert "timeout-minutes" in job or "uses" in job


@every_workflow
def test_each_action_has_a_version_and_no_secret_is_read(path: Path) -> None:
    assert "secrets." not in path.read_text()
    for step in steps(path):
        assert "run" in step or re.search(r"@(v\d|release/v\d)", step["uses"])


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_each_issue_form_parses(path: Path) -> None:
    form = yaml.safe_load(path.read_text())
    if path.stem != "config":
        assert {"name", "description", "body"} <= form.keys()
        assert any(each.get("validations", {}).get("required") for each in form["body"])


def test_help_lists_every_command_in_order() -> None:
    makefile = (ROOT / "Makefile").read_text()
    (phony,) = re.findall(r"^\.PHONY: ((?:.*\\\n)*.*)$", makefile, re.MULTILINE)
    named = phony.replace("\\", " ").split()
    assert named == sorted(named)
    described = re.findall(r"^([a-z-]+):[^#=\n]*## ", makefile, re.MULTILINE)
    assert sorted(described) == named
