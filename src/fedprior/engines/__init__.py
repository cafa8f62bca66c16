"""Loops that run an Algorithm."""
