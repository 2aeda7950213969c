"""Logs, metrics, redaction."""
