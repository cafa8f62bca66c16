"""A regression of its own for every small group: NumPy and SciPy only, JAX never loaded."""
