"""The process's metrics as one text, made at most once a second however many ask."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from sink.http.facts import WorkerFacts

CONTENT_TYPE = CONTENT_TYPE_LATEST
AGE_SECONDS = 1.0


class MetricsText:
    """`text` may be called by any thread."""

    def __init__(self, facts: WorkerFacts) -> None:
        self._facts = facts
        self._making = threading.Lock()
        self._text, self._made_at = b"", -AGE_SECONDS

    def text(self) -> bytes:
        with self._making:
            if time.monotonic() - self._made_at >= AGE_SECONDS:
                self._text = generate_latest(_Together(tuple(self._facts.registries)))
                self._made_at = time.monotonic()
            return self._text


class _Together(CollectorRegistry):
    """Several registries as one: families of one name are one family."""

    def __init__(self, registries: tuple[CollectorRegistry, ...]) -> None:
        super().__init__()
        self._registries = registries

    def collect(self) -> Iterator[Metric]:
        if len(self._registries) == 1:
            yield from self._registries[0].collect()
            return
        families: dict[str, Metric] = {}
        for registry in self._registries:
            for metric in registry.collect():
                known = families.get(metric.name)
                if known is None:
                    families[metric.name] = metric
                else:
                    known.samples.extend(metric.samples)
        yield from families.values()
