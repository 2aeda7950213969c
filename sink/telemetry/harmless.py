"""Keeps defects of metrics away from the code that decides."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

import structlog

LOG = structlog.get_logger("sink.worker")
_S = TypeVar("_S")
_P = ParamSpec("_P")


def harmless(inform: Callable[Concatenate[_S, _P], None]) -> Callable[Concatenate[_S, _P], None]:
    """Returns the method with its exceptions logged instead of raised: a defect costs figures, not a commit."""

    @wraps(inform)
    def run(self: _S, /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            inform(self, *args, **kwargs)
        except Exception:
            LOG.exception("metrics.failed", method=inform.__name__)

    return run
