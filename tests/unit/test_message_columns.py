"""Messages as columns, in a case for which a test can hardly fill a topic."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

from sink.write.message_columns import message_columns

MIB = 1 << 20


def test_values_that_no_column_can_hold_are_an_error_and_no_wrong_column() -> None:
    """The error counts as a failure for memory: the next attempt holds less."""
    times = (TIMESTAMP_CREATE_TIME, 0)
    messages = [Message("orders", 0, 0, None, bytes(MIB), None, None, times)] * 2048
    count = len(messages)
    with pytest.raises(pa.ArrowCapacityError):
        message_columns(
            messages, np.zeros(count, np.int32), np.arange(count), np.zeros(count, np.uint64), headers=False
        )
