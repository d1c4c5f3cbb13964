"""Scrapes of a node's metrics, and rates between two scrapes."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise

from prometheus_client.parser import text_string_to_metric_families

Labels = frozenset[tuple[str, str]]


class Scrape:
    """Samples of one scrape, taken at `at_s` (seconds of any clock)."""

    def __init__(self, text: str, at_s: float) -> None:
        self.at_s = at_s
        self._samples: defaultdict[str, dict[Labels, float]] = defaultdict(dict)
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                self._samples[sample.name][frozenset(sample.labels.items())] = sample.value

    def total(self, name: str, **labels: str) -> float:
        """Sum of the samples of a metric with these labels."""
        return sum(value for _, value in self._of(name, labels))

    def by(self, name: str, label: str, **labels: str) -> dict[str, float]:
        """Sums of a metric by the values of one label."""
        found: defaultdict[str, float] = defaultdict(float)
        for names, value in self._of(name, labels):
            found[names.get(label, "")] += value
        return dict(found)

    def label(self, name: str, label: str) -> str:
        """The value of a label of a single-sample metric; "" if absent."""
        return next((names.get(label, "") for names, _ in self._of(name, {})), "")

    def _of(self, name: str, labels: Mapping[str, str]) -> Iterator[tuple[dict[str, str], float]]:
        for names, value in self._samples.get(name, {}).items():
            if labels.items() <= set(names):
                yield dict(names), value


class Between:
    """The difference of two scrapes; a counter that fell was reset."""

    def __init__(self, before: Scrape, now: Scrape) -> None:
        self.now = now
        self._before = before
        self._seconds = max(now.at_s - before.at_s, 1e-9)

    def rate(self, name: str, **labels: str) -> float:
        """Increase of a counter per second."""
        grown = self.now.total(name, **labels) - self._before.total(name, **labels)
        return max(0.0, grown) / self._seconds

    def quantile(self, share: float, name: str, **labels: str) -> float | None:
        """Quantile of a histogram between the scrapes; None without observations.

        Interpolates linearly within a bucket, as Prometheus does; values above the highest bound
        count as that bound.
        """
        bounds = sorted(
            (float(bound), max(0.0, count - self._earlier(name, bound, labels)))
            for bound, count in self.now.by(f"{name}_bucket", "le", **labels).items()
        )
        if not bounds or not bounds[-1][1]:
            return None
        wanted = share * bounds[-1][1]
        if bounds[0][1] >= wanted:
            return bounds[0][0]
        for (low, under), (high, count) in pairwise(bounds):
            if count >= wanted:
                if high == float("inf"):
                    return low
                return low + (high - low) * (wanted - under) / (count - under)
        return bounds[-1][0]

    def _earlier(self, name: str, bound: str, labels: Mapping[str, str]) -> float:
        return self._before.total(f"{name}_bucket", le=bound, **labels)
