"""The points of a sweep: every combination of the values of its options."""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedprior.core import check
from fedprior.core.algorithm import Algorithm, Array

Point = dict[str, Any]  # a value for each swept option
Member = tuple[int, dict[str, float]]  # a point's place in the grid, and its numbers that vary


def points(over: Mapping[str, Sequence[Any]]) -> list[Point]:
    """All combinations, the last option varying fastest.

    >>> points({"rate": [0.1, 0.2], "steps": [5]})
    [{'rate': 0.1, 'steps': 5}, {'rate': 0.2, 'steps': 5}]
    """
    for name, values in over.items():
        check.require(len(values) > 0, "sweep", name, "given at least one value", list(values))
        twice = len(set(values)) < len(values)
        check.require(not twice, "sweep", name, "of values that differ", list(values))
    return [dict(zip(over, values, strict=True)) for values in itertools.product(*over.values())]


@dataclass(frozen=True)
class Family:
    """The algorithms of one program: `build` with `fixed` options, and numbers that vary.

    Numbers with a decimal point vary within a program; whole numbers and words decide its shape.
    """

    build: Callable[..., Algorithm]
    fixed: tuple[tuple[str, Any], ...]

    def at(self, numbers: Mapping[str, Array]) -> Algorithm:
        """The algorithm at `numbers`, which may be traced."""
        return self.build(**dict(self.fixed), **numbers)


def families(build: Callable[..., Algorithm], grid: Iterable[Point]) -> dict[Family, list[Member]]:
    """The grid's points by family, in its order; every point is built once.

    Building checks each value before anything is traced.
    """
    found: dict[Family, list[Member]] = {}
    for place, point in enumerate(grid):
        build(**point)
        numbers = {name: value for name, value in point.items() if isinstance(value, float)}
        fixed = tuple((name, value) for name, value in point.items() if name not in numbers)
        found.setdefault(Family(build, fixed), []).append((place, numbers))
    return found
