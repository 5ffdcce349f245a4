# Copyright 2026 The vanilla_transformer authors. Licensed under the Apache License, Version 2.0.
"""The one error for mistakes in a request; all that is not one of these is a defect."""


class RequestError(ValueError):
    """Something that was asked for cannot be done as it was asked for.

    Its message says what was got, what is allowed and what to do, and the command line prints it
    as one line without a traceback. Whoever calls a function may catch it as the `ValueError` that
    it is.
    """


def quoted(value: object, most: int = 60) -> str:
    """Return a value as a message repeats it: numbers and text up to `most` characters, else kind.

    What is nested is not written out: a few lines of YAML can stand for gigabytes of it.
    """
    known = value is None or isinstance(value, str | bytes | int | float)
    try:
        text = repr(value) if known else f"a {type(value).__name__}"
    except ValueError:  # Python writes no number of more than 4300 digits
        text = "a number of thousands of digits"
    return text if len(text) <= most else f"{text[: most - 4]} ..."


__all__ = ["RequestError", "quoted"]
