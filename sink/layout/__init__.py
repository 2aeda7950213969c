"""Record keys, table partitions, file ids.

`record_keys.RecordKeys` and `partition_paths.PartitionPaths` give the same texts as Hudi's key generators;
`partition_times` makes a column of a time. `file_ids` derives a file group's id from what a write task holds.
`column_ranges` are the statistics of a file. Pure, over Arrow.
"""
