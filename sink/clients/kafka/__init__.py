"""Kafka's log: topics, offsets, times and groups, asked where librdkafka may hang without harm."""
