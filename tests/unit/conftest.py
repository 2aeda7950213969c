"""Property tests judge results, never how fast a loaded machine is.

They try the same cases everywhere; `HYPOTHESIS_PROFILE=explore` tries new ones.
"""

import logging
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

SLOW = [HealthCheck.too_slow]

settings.register_profile("unit", deadline=None, suppress_health_check=SLOW, derandomize=True)
settings.register_profile("explore", deadline=None, suppress_health_check=SLOW, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "unit"))


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """A command that runs in this process sets up its logging, on a stream that ends with its test."""
    loggers = [logging.getLogger(name) for name in ("", "sink", "coordination", "kazoo")]
    before = [(logger, logger.level, list(logger.handlers)) for logger in loggers]
    yield
    for logger, level, handlers in before:
        logger.setLevel(level)
        logger.handlers[:] = handlers
