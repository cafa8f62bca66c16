"""Populations of any shape, for every one-dimensional family: fits, choice, check, answers."""

SHAPES = ("scale-mixture", "spike-and-slab", "nonparametric")  # beside the conjugate population
