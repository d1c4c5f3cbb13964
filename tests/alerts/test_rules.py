"""The alert rules are valid, name metrics that exist, and say what to do."""

import re
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from onebook import api, app  # noqa: F401  every metric of a node is declared
from onebook.archive import recorder  # noqa: F401  which a node imports only with history.dir
from onebook.gateway import codes

from .promtool import NAMES, RULES, needed, run

ROOT = Path(__file__).parents[2]
REFERENCE = (ROOT / "docs" / "reference" / "metrics.md").read_text()


def declared():
    """Our metrics by the names that Prometheus stores them under."""
    endings = {"counter": "_total", "info": "_info"}
    families = (family for family in REGISTRY.collect() if family.name.startswith("onebook_"))
    return {family.name + endings.get(family.type, "") for family in families}


@needed
def test_promtool_finds_nothing_wrong_with_the_rules():
    done = run("check", "rules", RULES)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(NAMES)} rules found" in done.stdout


def test_every_metric_is_documented_and_every_documented_one_exists():
    named = set(re.findall(r"^\| `(onebook_\w+)`", REFERENCE, re.MULTILINE))
    assert named == declared()


def test_rules_name_metrics_that_exist():
    text = RULES.read_text()
    expressions = " ".join(re.findall(r"^ +expr: (.*)$", text, re.MULTILINE))
    named = {
        re.sub(r"_(count|sum|bucket)$", "", name)
        for name in re.findall(r"\bonebook_\w+", expressions)
    }
    assert named - declared() == set()


def test_every_alert_says_what_happened_and_what_to_do():
    alerts = re.split(r"\n +- alert: ", RULES.read_text())[1:]
    assert len(alerts) == len(NAMES) == len(set(NAMES))
    for alert in alerts:
        assert re.search(r'summary: ".+\."$', alert, re.MULTILINE), alert
        assert re.search(r'action: ".+\."$', alert, re.MULTILINE), alert
        assert re.search(r"severity: (page|ticket)}", alert), alert


@pytest.mark.parametrize("code", sorted(codes.CLOSE_CODES))
def test_every_close_code_is_counted_from_the_start(code):
    assert REGISTRY.get_sample_value("onebook_ws_closes_total", {"code": str(code)}) is not None
