"""Parsers of bytes that strangers send, inputs that hurt such parsers, and the fuzzer that looks for more."""
