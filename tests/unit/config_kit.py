"""The smallest valid configuration."""

MINIMAL = """
zookeeper.connect: zk:2181
kafka.bootstrap.servers: broker:9092
kafka.topic.names: orders
target.base.path: /lake/orders
target.table.name: orders
schema.ddl: id BIGINT
"""
