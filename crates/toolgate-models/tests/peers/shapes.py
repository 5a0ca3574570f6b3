"""Checks a value against the types that an official client declares for its requests.

Stricter than the clients themselves: lists are looked into, and a field that no type has is wrong.
"""

import collections.abc
import types
import typing

import typing_extensions as te

UNIONS = (typing.Union, types.UnionType)
LISTS = (list, collections.abc.Iterable, collections.abc.Sequence, collections.abc.Collection)
MAPS = (dict, collections.abc.Mapping)
WRAPPERS = (te.Required, te.NotRequired, te.ReadOnly, typing.Required, typing.NotRequired)


class Wrong(Exception):
    """The value does not match; the message says where and why."""

    def __init__(self, at, why, depth=None):
        super().__init__(f"{at or '/'}: {why}")
        self.why, self.depth = why, at.count("/") if depth is None else depth


def check(value, kind, at=""):
    """Raises `Wrong` unless the value matches the type."""
    origin, arguments = te.get_origin(kind), te.get_args(kind)
    if origin in WRAPPERS or origin is te.Annotated or origin is typing.Annotated:
        return check(value, arguments[0], at)
    if isinstance(kind, te.TypeAliasType):
        return check(value, kind.__value__, at)
    if kind in (typing.Any, object):
        return None
    if origin in UNIONS:
        return check_any(value, arguments, at)
    if origin is te.Literal or origin is typing.Literal:
        return need(any(value == one and type(value) is type(one) for one in arguments), at, f"{value!r} is none of {arguments}")
    if te.is_typeddict(kind):
        return check_fields(value, kind, at)
    if origin in MAPS or kind in MAPS:
        need(isinstance(value, dict), at, "is no object")
        for name, item in value.items():
            check(item, arguments[1] if arguments else object, f"{at}/{name}")
        return None
    if origin in LISTS or kind in LISTS or getattr(origin or kind, "__name__", "") == "SequenceNotStr":
        need(isinstance(value, list), at, "is no list")
        for number, item in enumerate(value):
            check(item, arguments[0] if arguments else object, f"{at}/{number}")
        return None
    return check_plain(value, kind, at)


def check_plain(value, kind, at):
    if kind is None or kind is type(None):
        return need(value is None, at, "is not null")
    if kind is float:
        return need(isinstance(value, (int, float)) and not isinstance(value, bool), at, "is no number")
    if kind is int:
        return need(isinstance(value, int) and not isinstance(value, bool), at, "is no integer")
    if kind in (str, bool):
        return need(isinstance(value, kind), at, f"is no {kind.__name__}")
    # What is left are files, bytes and instances of classes, which JSON cannot hold.
    raise Wrong(at, f"cannot be a {kind}")


def check_any(value, kinds, at):
    """Checks that one of several types matches. The error is that of the closest type."""
    closest = None
    for kind in kinds:
        try:
            return check(value, kind, at)
        except Wrong as wrong:
            if closest is None or wrong.depth > closest.depth:
                closest = wrong
    raise closest


def check_fields(value, kind, at):
    need(isinstance(value, dict), at, "is no object")
    hints = te.get_type_hints(kind, include_extras=True)
    # What tells objects apart comes first and counts as far off, so that the complaint is about the type that was meant.
    for name in ("type", "role"):
        if name in value and name in hints:
            try:
                check(value[name], hints[name], f"{at}/{name}")
            except Wrong as wrong:
                raise Wrong(f"{at}/{name}", wrong.why, -1) from None
    for name in kind.__required_keys__:
        need(name in value, at, f"{name} is missing from {kind.__name__}")
    for name in value:
        need(name in hints, at, f"{name} is no field of {kind.__name__}")
        check(value[name], hints[name], f"{at}/{name}")


def need(fits, at, why):
    if not fits:
        raise Wrong(at, why)
