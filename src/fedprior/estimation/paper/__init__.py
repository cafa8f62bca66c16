"""Estimators exactly as the paper prints them (`method="paper"`), kept for comparison.

ERRATA lists what is wrong with each; the defaults elsewhere in this layer use the corrected forms.
"""
