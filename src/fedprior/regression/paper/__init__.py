"""Regression algorithms as the paper prints them (`method="paper"`), kept for comparison.

Signs and orders of steps without which they would not run are corrected; what makes their variances
or clusters collapse is not (ERRATA 22-37).
"""
