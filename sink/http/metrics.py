"""The process's metrics as one text, made at most once a second for all clients."""

from __future__ import annotations

import gzip
import threading
import time

from prometheus_client.exposition import CONTENT_TYPE_LATEST

from sink.http.facts import WorkerFacts

CONTENT_TYPE = CONTENT_TYPE_LATEST
AGE_SECONDS = 1.0


class MetricsText:
    """Any thread may call `text`."""

    def __init__(self, facts: WorkerFacts) -> None:
        self._facts = facts
        self._making = threading.Lock()
        self._text, self._zipped, self._made_at = b"", b"", -AGE_SECONDS

    def text(self) -> tuple[bytes, bytes]:
        """Returns the text, plain and compressed by gzip."""
        with self._making:
            if time.monotonic() - self._made_at >= AGE_SECONDS:
                self._text = self._facts.metrics()
                self._zipped = gzip.compress(self._text, 1)
                self._made_at = time.monotonic()
            return self._text, self._zipped
