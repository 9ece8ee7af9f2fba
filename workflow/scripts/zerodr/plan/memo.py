"""Remember results of pure methods, and signatures of functions that Snakemake inspects at each call."""

from collections.abc import Callable
from functools import wraps
from inspect import Signature
from typing import Any, Concatenate, ParamSpec, TypeVar

Owner = TypeVar("Owner")
Result = TypeVar("Result")
Key = ParamSpec("Key")
Function = TypeVar("Function", bound=Callable[..., Any])


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


def with_signature(signature: Signature) -> Callable[[Function], Function]:
    """Keep a function's signature with it, so that nobody computes it again."""

    def attach(function: Function) -> Function:
        function.__signature__ = signature  # type: ignore[attr-defined]
        function._overwrite_params = signature.parameters  # type: ignore[attr-defined]  # Snakemake's own name
        return function

    return attach
