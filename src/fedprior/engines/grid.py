"""The points of a sweep: every combination of the values of its options."""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedprior.core import check
from fedprior.core.algorithm import Algorithm, Array

Point = dict[str, Any]  # a value for each swept option
Member = tuple[int, dict[str, float]]  # a point's index in the grid, and its varying numbers


def points(over: Mapping[str, Sequence[Any]]) -> list[Point]:
    """Return all combinations, with the last option varying fastest.

    >>> points({"rate": [0.1, 0.2], "steps": [5]})
    [{'rate': 0.1, 'steps': 5}, {'rate': 0.2, 'steps': 5}]
    """
    for name, values in over.items():
        check.require(len(values) > 0, "sweep", name, "a list of at least one value", list(values))
        repeated = len(set(values)) < len(values)
        check.require(not repeated, "sweep", name, "a list of distinct values", list(values))
    return [dict(zip(over, values, strict=True)) for values in itertools.product(*over.values())]


@dataclass(frozen=True)
class Family:
    """The algorithms that share one program: `build` with `fixed` options and varying numbers.

    Floats vary within a program; integers and strings determine its shape.
    """

    build: Callable[..., Algorithm]
    fixed: tuple[tuple[str, Any], ...]

    def at(self, numbers: Mapping[str, Array]) -> Algorithm:
        """Return the algorithm at `numbers`, which may be traced."""
        return self.build(**dict(self.fixed), **numbers)


def families(build: Callable[..., Algorithm], grid: Iterable[Point]) -> dict[Family, list[Member]]:
    """Group the points of the grid by family, in their order.

    Every point is built once, which checks its values before anything is traced.
    """
    groups: dict[Family, list[Member]] = {}
    for place, point in enumerate(grid):
        build(**point)
        numbers = {name: value for name, value in point.items() if isinstance(value, float)}
        fixed = tuple((name, value) for name, value in point.items() if name not in numbers)
        groups.setdefault(Family(build, fixed), []).append((place, numbers))
    return groups
