"""A contender of a benchmark, in a module whose import costs its process nothing."""

import os


def noting(log, name):
    """Notes its turns in a file, answers with its process, and ends when it is told to."""

    def run(task):
        with open(log, "a") as file:
            file.write(f"{name}{task}\n")
        if task == "end":
            raise SystemExit("told to end")
        return os.getpid()

    return run
