"""Writes the parts of docs/ that are taken from running the program: help texts, sample outputs, the picture."""
