"""Run folders and tables."""
