"""Metrics that several packages set: names by convention, no labels of clients or symbols."""

import pytest
from prometheus_client import Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics import MetricWrapperBase

from onebook import metrics

METRICS = [each for each in vars(metrics).values() if isinstance(each, MetricWrapperBase)]
LABELS = {"exchange", "health", "mark", "reason"}


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
