"""Engines: from write tasks to files and reports.

`engine.engine_of` makes the engine of a table: files by pyarrow in Spark's Python workers (`slice_task`, `slice_files`,
`base_file`), or rows for one of Hudi's writers. `task_input` and `kafka_reader` read exactly the slices of a task;
`record_columns` and `changes` make rows of them; `quarantine` sets bad records aside. `row_spec` derives columns and
formats from the specifications of table and records.
"""
