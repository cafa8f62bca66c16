"""The options of a factory are its keyword arguments, passed on to another factory or not."""

import inspect
import types
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Literal, Union, get_args, get_origin

from fedprior.core.algorithm import Algorithm

Factory = Callable[..., Algorithm]


def passes_on(target: Factory, *names: str) -> Callable[[Factory], Factory]:
    """Declares `**options` of a factory: the keyword arguments `names` of `target`.

    They keep the target's types and defaults, are part of the factory's signature, and any other
    keyword raises TypeError.
    """
    taken = inspect.signature(target).parameters

    def declare(factory: Factory) -> Factory:
        own = inspect.signature(factory)
        explicit = [each for each in own.parameters.values() if each.kind is not each.VAR_KEYWORD]
        whole = own.replace(parameters=[*explicit, *(taken[name] for name in names)])

        @wraps(factory)
        def build(*arguments: Any, **options: Any) -> Algorithm:
            try:
                whole.bind(*arguments, **options)
            except TypeError as error:
                raise TypeError(f"{factory.__name__}: {error}") from None
            return factory(*arguments, **options)

        build.__signature__ = whole  # type: ignore[attr-defined]
        return build

    return declare


def settable(factory: Factory, *, without: Sequence[str] = ()) -> list[str]:
    """The options that a configuration can hold: numbers, words and flags."""
    parameters = inspect.signature(factory).parameters.values()
    names = [each.name for each in parameters if _is_plain(each.annotation)]
    return [name for name in names if name not in without]


def _is_plain(hint: Any) -> bool:
    if get_origin(hint) in (Union, types.UnionType):
        return any(_is_plain(part) for part in get_args(hint))
    return get_origin(hint) is Literal or hint in (int, float, bool, str)
