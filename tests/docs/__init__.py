"""Writes the parts of docs/ that come from running the program: help texts, sample outputs, the picture."""
