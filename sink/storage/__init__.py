"""Reaches the file system of a table: its paths, its credentials, its files and its faults.

Writers, readers, the auditor and the commands use the same classes, so that all see the same store with the same
rights. Gives `Access`, `open_storage`, `open_table`; imports nothing of the settings.
"""
