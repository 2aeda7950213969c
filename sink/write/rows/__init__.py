"""Records as rows of the table, or as changes of rows: columns, formats, keys, partitions, and what is bad."""
