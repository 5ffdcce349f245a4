# Copyright 2026 The vanilla_transformer authors. Licensed under the Apache License, Version 2.0.
"""The one error for mistakes in a request; all that is not one of these is a defect."""


class RequestError(ValueError):
    """Something that was asked for cannot be done as it was asked for.

    Its message says what was got, what is allowed and what to do, and the command line prints it
    as one line without a traceback. Whoever calls a function may catch it as the `ValueError` that
    it is.
    """


__all__ = ["RequestError"]
