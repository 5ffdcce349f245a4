"""Values that users may give for any option by mistake or malice, as text and as objects."""

import math

from vanilla_transformer.errors import RequestError

# Text from a command line or a quoted YAML value.
TEXTS = (
    "",
    " ",
    "0",
    "1.5",
    "1e-300",
    "nan",
    "-inf",
    "9" * 20,
    "9" * 10_000,
    "1__0",
    "\u0663",  # three, in Arabic digits
    "true",
    "none",
    "2020-01-01",
    "nonsense",
    "a\0b",
    "\udcff",  # a byte of a command line that is not UTF-8
    "\u202e\x1b[31m\n",
    "x" * 100_000,
    "/proc/self/mem",
)

_many = ["lol"]
for _ in range(40):  # a few lines of YAML aliases expand to 2^40 items
    _many = [_many, _many]

# Objects from YAML, JSON or a program.
OBJECTS = (None, True, 0, -1, 10**23, 10**5000, 5e-324, math.nan, -math.inf)
OBJECTS += (b"bytes", [], [1], {"a": 1}, _many, object())


def refusal_of(function, *arguments, **options):
    """Return the message with which the function refuses the arguments, or None."""
    try:
        function(*arguments, **options)
    except RequestError as error:
        return str(error)
    return None
