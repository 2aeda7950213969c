"""JSON values, and Kafka Connect's envelope, as columns."""
