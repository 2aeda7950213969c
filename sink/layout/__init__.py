"""Record keys, table partitions, file ids."""
