"""A contender of a benchmark, in a module that imports quickly."""

import os


def noting(log, name):
    """Return a contender that logs its turns, returns its process id, and exits on "end"."""

    def run(task):
        with open(log, "a") as file:
            file.write(f"{name}{task}\n")
        if task == "end":
            raise SystemExit("told to end")
        return os.getpid()

    return run
