"""Remember results of pure methods: a plan does not change after it was made."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

Owner = TypeVar("Owner")
Result = TypeVar("Result")
Key = ParamSpec("Key")


def remembered(method: Callable[Concatenate[Owner, Key], Result]) -> Callable[Concatenate[Owner, Key], Result]:
    """Compute a method's result once for each object and arguments, which are hashable. Callers don't change it."""
    name = f"_remembered_{method.__name__}"

    @wraps(method)
    def look_up(self: Owner, /, *args: Key.args, **kwargs: Key.kwargs) -> Result:
        results: dict[Any, Result] = self.__dict__.setdefault(name, {})
        key = (args, *kwargs.items()) if kwargs else args
        if key not in results:
            results[key] = method(self, *args, **kwargs)
        return results[key]

    return look_up
