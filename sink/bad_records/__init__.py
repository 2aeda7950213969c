"""The errors table and its replay."""
