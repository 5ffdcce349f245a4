"""A disk that is full."""

import contextlib
import resource


@contextlib.contextmanager
def largest_file(size):
    """Make the system refuse writes beyond a size, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
