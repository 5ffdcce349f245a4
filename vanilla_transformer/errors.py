# Copyright 2026 The vanilla_transformer authors. Licensed under the Apache License, Version 2.0.
"""The error for mistakes in a request. Any other exception is a bug."""


class RequestError(ValueError):
    """A mistake in a request, such as an argument out of range.

    Its message says what was got, what is allowed and what to do. The command line prints it as
    one line without a traceback. Callers of functions can catch it as a `ValueError`.
    """


class NotFiniteError(RequestError):
    """A loss, likelihood or output is NaN or infinite: training diverged or weights are bad."""


def quoted(value: object, most: int = 60) -> str:
    """Format a value for a message: numbers and text up to `most` characters, else the type.

    Nested values are not written out: a few lines of YAML can expand to gigabytes.
    """
    known = value is None or isinstance(value, str | bytes | int | float)
    try:
        text = repr(value) if known else f"a {type(value).__name__}"
    except ValueError:  # Python refuses to print a number of more than 4300 digits
        text = "a number of thousands of digits"
    return text if len(text) <= most else f"{text[: most - 4]} ..."
