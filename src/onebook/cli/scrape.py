"""One scrape of a node's metrics, and the rates between two scrapes."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise

from prometheus_client.parser import text_string_to_metric_families

Labels = frozenset[tuple[str, str]]


class Scrape:
    """The samples of one scrape, taken at `at_s` seconds of any clock."""

    def __init__(self, text: str, at_s: float) -> None:
        self.at_s = at_s
        self._samples: defaultdict[str, dict[Labels, float]] = defaultdict(dict)
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                self._samples[sample.name][frozenset(sample.labels.items())] = sample.value

    def total(self, name: str, **labels: str) -> float:
        """The sum of the samples of a metric that have these labels."""
        return sum(value for _, value in self._of(name, labels))

    def by(self, name: str, label: str, **labels: str) -> dict[str, float]:
        """The sums of a metric by the values of one label."""
        found: defaultdict[str, float] = defaultdict(float)
        for names, value in self._of(name, labels):
            found[names.get(label, "")] += value
        return dict(found)

    def label(self, name: str, label: str) -> str:
        """The value of a label of a metric with one sample; "" without it."""
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
        """How much a counter grew a second."""
        grown = self.now.total(name, **labels) - self._before.total(name, **labels)
        return max(0.0, grown) / self._seconds

    def quantile(self, share: float, name: str, **labels: str) -> float | None:
        """A quantile of what a histogram counted; None where it counted nothing.

        Within a bucket values are taken to lie evenly, as Prometheus does; what lies above the
        highest bound counts as that bound.
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
