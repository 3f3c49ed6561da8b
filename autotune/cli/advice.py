"""Commands that messages advise, as they can be pasted: with the model, the database and the options of the command
that prints them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from autotune.errors import AutotuneError

if TYPE_CHECKING:
    from autotune.frontends.sizes import Given

F = TypeVar("F", bound=Callable[..., Any])

_TUNE = re.compile(r"`autotune tune MODEL([^`]*)`")


def shape_options(shapes: Given | None) -> str:
    """Return sizes as options of a command that is advised, each with a space before it.

    >>> shape_options({"batch": (1,), "past + 1": (4,), "x": (1, 3), "seq": "1..8"})
    " --shape batch=1 --shape 'past + 1=4' --shape x=1x3 --shape seq=1..8"
    """
    from autotune.frontends.sizes import as_shape, option

    texts = {
        n: s if isinstance(s, str) else "x".join(map(str, as_shape(s))) for n, s in (shapes or {}).items()
    }
    return "".join(f" {option(name, text)}" for name, text in texts.items())


def tune_options(options: Mapping[str, Any], without: str = "") -> str:
    """Return options of a command as those of ``autotune tune``, which needs the same to search what is asked for; none
    that stands in the text ``without``.

    >>> tune_options({"target": "host", "threads": 2, "shapes": {"batch": (1,)}, "database": "my db"}, " --threads 1")
    " --db 'my db' --shape batch=1"
    """
    target = options.get("target") or "host"
    named = {
        "--db": options.get("database"),
        "--target": None if target == "host" else target,
        "--threads": options.get("threads"),
    }
    texts = [
        f" {flag} {shlex.quote(str(value))}"
        for flag, given in named.items()
        if given is not None and f"{flag} " not in without
        for value in (given if isinstance(given, tuple | list) else [given])
    ]
    return "".join(texts) + shape_options(options.get("shapes")) + _value_options(options.get("values"))


def _value_options(values: Mapping[str, Any] | None) -> str:
    """Return inputs that are constant as options of a command that is advised, each with a space before it.

    >>> _value_options({"k": 5, "axes": [1, 2]})
    ' --value k=5 --value axes=1,2'
    """
    texts = {n: ",".join(map(str, v if isinstance(v, list) else [v])) for n, v in (values or {}).items()}
    return "".join(f" --value {shlex.quote(f'{name}={text}')}" for name, text in texts.items())


def pasted(text: str, models: str, options: Mapping[str, Any]) -> str:
    """Return a message whose ```autotune tune MODEL``` is of these models and options.

    >>> pasted("run `autotune tune MODEL --db t.db`", "my.onnx", {"shapes": {"b": (1,)}, "database": "u.db"})
    'run `autotune tune my.onnx --shape b=1 --db t.db`'
    """

    def command(match: re.Match[str]) -> str:
        return f"`autotune tune {models}{tune_options(options, match[1])}{match[1]}`"

    return _TUNE.sub(command, text)


def asked_models(options: Mapping[str, Any]) -> str:
    """Return the model or models of a command, as a shell takes them.

    >>> asked_models({"model": "a b.onnx"}), asked_models({"models": ("a", "b")})
    ("'a b.onnx'", 'a b')
    """
    given = options.get("models") or [options.get("model") or options.get("what") or "MODEL"]
    return shlex.join(map(str, given))


def advising(command: F) -> F:
    """Return a command whose errors advise commands that can be pasted."""

    @wraps(command)
    def called(*values: Any, **options: Any) -> Any:
        try:
            return command(*values, **options)
        except AutotuneError as error:
            error.args = (pasted(str(error), asked_models(options), options), *error.args[1:])
            raise

    return cast("F", called)


__all__ = ["advising", "asked_models", "pasted", "shape_options", "tune_options"]
