"""Engines: from write tasks to files and reports."""
