"""Warns of a table that has offsets of another tool, which nobody has adopted. Raises nothing."""

from __future__ import annotations

import structlog

from coordination.errors import SinkError
from coordination.zookeeper.keeper import Keeper
from sink.config import Settings
from sink.operations.adoption import read_foreign_offsets, unadopted_offsets_warning

LOG = structlog.get_logger("sink.worker")


def warn_of_foreign_offsets(settings: Settings, keeper: Keeper) -> None:
    """Warns of another tool's offsets, as `sink validate` does before a worker is started."""
    try:
        view = keeper.read()
        if view.states:
            return
        if warning := unadopted_offsets_warning(
            read_foreign_offsets(settings.base_path, settings.storage), settings.name, view
        ):
            LOG.warning("table.not_adopted", reason=warning)
    except SinkError as error:
        LOG.debug("table.offsets_unread", reason=str(error))
