"""Options of other systems: check which are supported, and note unknown ones.

options.toml lists the options that each system has.
"""

import argparse
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from ...errors import RequestError, quoted
from .safe_files import listed

_TABLES = Path(__file__).with_name("options.toml")
_OFF: tuple[object, ...] = (None, False, 0, "", [], (), {})


def options_in(settings: object) -> dict[str, Any]:
    """Return the options in an argparse.Namespace or a dict; none for any other type."""
    settings = vars(settings) if isinstance(settings, argparse.Namespace) else settings
    return dict(settings) if isinstance(settings, Mapping) else {}


def check_options(
    settings: object, *systems: str, origin: object, given: Mapping[str, object] | None = None
) -> tuple[str, ...]:
    """Refuse options that change the computation in a way this package does not support.

    Args:
        settings: The source's options, as `options_in` takes them.
        systems: Names of the system's tables in options.toml.
        origin: The source's name in errors.
        given: Further options, each with its only allowed value: the one that the caller gave.

    Returns:
        A note with the names of unknown options that are set, if there are any.

    Raises:
        ValueError: An option has a value that is not allowed.
    """
    all_tables = tomllib.loads(_TABLES.read_text(encoding="utf-8"))
    tables = [all_tables[system] for system in systems]
    kinds = ("implemented", "without_effect")
    known = {name for table in tables for kind in kinds for name in table.get(kind, "").split()}
    values: dict[str, Sequence[object]]
    values = {name: _OFF for table in tables for name in table.get("refused", "").split()}
    for table in tables:
        values |= table.get("allowed", {})
    values |= {name: (value,) for name, value in (given or {}).items()}
    options = dict(_flat(options_in(settings), {*known, *values}))
    for name, value in options.items():
        if value is not None and name in values and not _is_one_of(value, values[name]):
            others = [repr(other) for other in values[name] if other not in _OFF] or ["off"]
            raise RequestError(f"{origin} has {name}={quoted(value)}; allowed: {listed(others)}.")
    unknown = {
        name: str(name)
        for name, value in options.items()
        if name not in known and name not in values and not _is_one_of(value, _OFF)
    }
    for table in tables:
        for name in unknown.keys() & table.get("names", {}).keys():
            unknown[name] = f"{name}={quoted(options[name])}"
            if options[name] in table["names_of_others"][name]:
                raise RequestError(f"{origin} has {unknown[name]}, which is not supported.")
            if options[name] in table["names"][name]:
                del unknown[name]
    if not unknown:
        return ()
    names = ", ".join(sorted(unknown.values()))
    return (f"Unknown options, taken to have no effect on the model: {names}.",)


def shared_option(name: str, values: Mapping[str, Any], *, origin: object) -> Any:
    """Return the value of an option, which must be the same in encoder and decoder.

    Raises:
        ValueError: Encoder and decoder differ, but our configuration has one value for both.
    """
    first, *others = values.values()
    if others != [first] * len(others):
        raise RequestError(f"{origin} has {name}={values}; both stacks need the same value.")
    return first


def _flat(options: Mapping[str, Any], names: Collection[str]) -> Iterator[tuple[str, Any]]:
    """Flatten nested options to the dotted names of options.toml, such as `embeddings.scale`."""
    for name, value in options.items():
        inside = {known.removeprefix(f"{name}.") for known in names if known.startswith(f"{name}.")}
        if inside and isinstance(value, Mapping):
            yield from ((f"{name}.{key}", inner) for key, inner in _flat(value, inside))
        else:
            yield name, value


def _is_one_of(value: object, allowed: Sequence[object]) -> bool:
    return not isinstance(value, Tensor) and value in allowed  # == of tensors is elementwise
