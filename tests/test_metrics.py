"""Metrics that several packages set: names by convention, no labels of clients or symbols."""

import asyncio
import time

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics import MetricWrapperBase

from onebook import metrics

METRICS = [each for each in vars(metrics).values() if isinstance(each, MetricWrapperBase)]
LABELS = {"exchange", "files", "health", "layer", "mark", "outcome", "reason"}


@pytest.mark.parametrize("metric", METRICS, ids=lambda each: each._name)
def test_a_name_begins_with_ours_and_labels_are_few(metric):
    assert metric._name.startswith("onebook_")
    assert set(metric._labelnames) <= LABELS
    assert metric._documentation.endswith(".")


def test_a_time_is_in_seconds():
    timed = [each for each in METRICS if isinstance(each, Histogram)]
    assert timed
    assert all(each._name.endswith("_seconds") for each in timed)


def test_counters_that_alerts_watch_have_samples_before_the_first_count():
    text = generate_latest().decode()
    for reason in ("invalid_api_key", "api_key_disabled", "rate_limit_exceeded"):
        assert f'onebook_authentication_failures_total{{reason="{reason}"}}' in text
    for mark in ("warning", "over"):
        assert f'onebook_allowance_marks_total{{mark="{mark}"}}' in text


def test_there_are_counters_and_gauges():
    assert {Counter, Gauge} <= {type(each) for each in METRICS}


def registry_of(families):
    registry = CollectorRegistry()
    for number in range(families):
        gauge = Gauge(f"onebook_test_{number}", "A test's.", ["name"], registry=registry)
        for name in range(200):
            gauge.labels(name).set(name)
    return registry


async def test_the_text_is_that_of_prometheus_client():
    registry = registry_of(3)
    assert await metrics.Exposition(registry).text() == generate_latest(registry)


async def test_the_text_is_rendered_at_most_once_a_second():
    registry = registry_of(1)
    collected = []

    class Counted:
        def collect(self):
            collected.append(1)
            return []

    registry.register(Counted())
    collected.clear()
    exposition = metrics.Exposition(registry)
    began_s = time.monotonic()
    texts = await asyncio.gather(*(exposition.text() for _ in range(200)))
    assert len(set(texts)) == 1
    assert len(collected) <= 1 + (time.monotonic() - began_s) / metrics.RENDER_S


async def test_others_have_turns_of_the_loop_while_the_text_is_rendered_and_given_out():
    exposition = metrics.Exposition(registry_of(100))
    turns = 0
    done = False

    async def other():
        nonlocal turns
        while not done:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    rendered = await exposition.text()
    assert turns > 5
    turns = 0
    assert set(await asyncio.gather(*(exposition.text() for _ in range(50)))) == {rendered}
    assert turns >= 49  # one text a turn
    done = True
    await task


async def test_a_client_that_leaves_while_the_text_is_rendered_harms_nobody():
    exposition = metrics.Exposition(registry_of(100))
    first, second = (asyncio.create_task(exposition.text()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).startswith(b"# HELP onebook_test_0")
