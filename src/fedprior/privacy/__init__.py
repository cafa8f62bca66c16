"""Cohorts and what they cost."""
