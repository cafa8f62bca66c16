"""Algorithms that train models."""
