"""Produces records with headers whose names are any bytes, which confluent-kafka's own producer refuses.

It calls librdkafka in C, as producers in C, Go and Rust do.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Sequence

from confluent_kafka import Producer, TopicPartition, cimpl

from coordination.errors import WrongLog
from sink.librdkafka import LogConsumer

_PRODUCER = 0
# The tags of the arguments of `rd_kafka_producev`.
_END, _TOPIC, _PARTITION, _VALUE, _FLAGS, _HEADERS = 0, 1, 3, 4, 7, 10
_COPY = 2
_MILLISECONDS = 30_000


def produce_with_headers(address: str, topic: str, records: Sequence[tuple[bytes, Sequence[bytes]]]) -> None:
    """Produces each value to partition 0, with headers of these names and without values."""
    library = ctypes.CDLL(cimpl.__file__)
    for function in (library.rd_kafka_conf_new, library.rd_kafka_new, library.rd_kafka_headers_new):
        function.restype = ctypes.c_void_p
    error = ctypes.create_string_buffer(512)
    config = ctypes.c_void_p(library.rd_kafka_conf_new())
    assert library.rd_kafka_conf_set(config, b"bootstrap.servers", address.encode(), error, 512) == 0, error.value
    producer = ctypes.c_void_p(library.rd_kafka_new(_PRODUCER, config, error, 512))
    assert producer, error.value
    for value, names in records:
        headers = ctypes.c_void_p(library.rd_kafka_headers_new(ctypes.c_size_t(len(names))))
        for name in names:
            size = ctypes.c_ssize_t(len(name))
            assert library.rd_kafka_header_add(headers, name, size, None, ctypes.c_ssize_t(0)) == 0
        content = (_VALUE, value, ctypes.c_size_t(len(value)), _FLAGS, _COPY, _HEADERS, headers)
        target = (_TOPIC, topic.encode(), _PARTITION, ctypes.c_int32(0))
        assert library.rd_kafka_producev(producer, *target, *content, _END) == 0
    assert library.rd_kafka_flush(producer, _MILLISECONDS) == 0
    library.rd_kafka_destroy(producer)


def mock_cluster() -> tuple[Producer, str]:
    """Starts a broker of librdkafka in this process, which ends with the producer. Returns both, with its address."""
    owner = Producer({"bootstrap.servers": "none:1", "test.mock.num.brokers": 1})
    brokers = owner.list_topics(timeout=10).brokers.values()
    return owner, ",".join(f"{broker.host}:{broker.port}" for broker in brokers)


def mock_identity(address: str, topic: str) -> tuple[str, str]:
    """Returns cluster and topic id of a broker of `mock_cluster`, which describes no topics: by expecting another."""
    consumer = LogConsumer({"bootstrap.servers": address, "group.id": "g"}, logging.getLogger("quiet"))
    consumer.expect("", {topic: "another"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        while True:
            consumer.consume(1, 0.1)
    except WrongLog as error:
        return error.found
    finally:
        consumer.close()
