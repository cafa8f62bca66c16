"""Many regressions as an analyst has them: a table, a target, a group, and coefficients back."""
