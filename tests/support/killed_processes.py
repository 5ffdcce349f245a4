"""Processes that are killed at a change of the disk, counted without clocks."""

import multiprocessing
import os
import sys

_CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.fsync"}


def killed_before(change, function):
    """Call a function in a fork that dies before its n-th change of the disk; return its changes.

    Those are one more than asked for if it was killed, and all of them otherwise.
    """
    count, fsync = multiprocessing.Value("i", 0), os.fsync
    child = os.fork()
    if child == 0:

        def kill(event, arguments):
            count.value += event in _CHANGES
            if count.value > change:
                os._exit(9)

        def noted_sync(descriptor):
            sys.audit("os.fsync", descriptor)
            fsync(descriptor)

        os.fsync = noted_sync
        sys.addaudithook(kill)
        code = 1
        try:
            function()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == (9 if count.value > change else 0)
    return count.value
