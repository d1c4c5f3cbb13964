"""Prometheus' promtool, run on samples scraped from running nodes."""

import asyncio
import json
import math
import re
import shutil
import subprocess
from pathlib import Path

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from onebook.metrics import RENDER_S
from steady import PATIENCE_S

RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "onebook.rules.yml"
PROMTOOL = shutil.which("promtool")
needed = pytest.mark.skipif(
    PROMTOOL is None, reason="promtool is not installed (Debian: apt-get install prometheus)"
)
NAMES = re.findall(r"- alert: (\w+)", RULES.read_text())
# The first scrape lasts 5 minutes, the second from then on. Counters are looked at soon after the
# change, gauges when the longest `for` is over.
STEP_S = 30
BEFORE_STEPS = 10
AFTER_STEPS = 34
LOOKS = ("7m30s", "11m", "21m")
USED = {"up", *re.findall(r"\bonebook_\w+", RULES.read_text())}


async def scrape(url, *, client=None, instance="node"):
    """The samples of a node's /metrics, by series."""
    if client is None:
        async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_S) as client:
            return await scrape(url, client=client, instance=instance)
    await asyncio.sleep(RENDER_S)  # a text may be that old
    page = (await client.get("/metrics")).raise_for_status().text
    found = {f'up{{job="onebook",instance="{instance}"}}': 1.0}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            labels = {"job": "onebook", "instance": instance, **sample.labels}
            body = ",".join(f"{name}={json.dumps(value)}" for name, value in labels.items())
            if sample.name in USED:
                found[f"{sample.name}{{{body}}}"] = sample.value
    return found


def run(*words):
    return subprocess.run([PROMTOOL, *map(str, words)], capture_output=True, text=True, check=False)


def firing(folder, before, after, names=NAMES):
    """The alerts that fire when a node's samples change from one scrape to the next."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    for group in groups:
        group["rules"] = [rule for rule in group["rules"] if rule.get("alert", names[0]) in names]
    text = json.dumps({"groups": groups})
    rules = folder / "rules.json"
    rules.write_text(text)
    used = {"up", *re.findall(r"\bonebook_\w+", text)}
    series = [
        {"series": name, "values": f"{_values(before.get(name), BEFORE_STEPS)} "
         f"{_values(after.get(name), AFTER_STEPS)}"}
        for name in {**before, **after} if name.partition("{")[0] in used
    ]  # fmt: skip
    expectations = [
        {"expr": _fires(name), "eval_time": at, "exp_samples": []} for name in names for at in LOOKS
    ]
    test = {"interval": f"{STEP_S}s", "input_series": series, "promql_expr_test": expectations}
    file = folder / "alerts.json"
    file.write_text(
        json.dumps(
            {"rule_files": [str(rules)], "evaluation_interval": f"{STEP_S}s", "tests": [test]}
        )
    )
    done = run("test", "rules", file)
    said = done.stdout + done.stderr
    found = {name for name in names if f"{_fires(name)!s}" in said.replace('\\"', '"')}
    assert bool(found) == bool(done.returncode), said
    return found


def _fires(name):
    return f'ALERTS{{alertname="{name}",alertstate="firing"}}'


def _values(value, steps):
    if value is None:
        return f"_x{steps}"
    text = "NaN" if math.isnan(value) else "+Inf" if value == math.inf else repr(float(value))
    return f"{text}+0x{steps - 1}"
