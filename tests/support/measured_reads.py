"""Read files in a process of its own, and print how much memory each took, and how it ended.

    python tests/support/measured_reads.py [KIND PATH] ...

One line of JSON each: bytes above those before the reading, and the message of the refusal. An
error other than a refusal ends the process.
"""

import gc
import json
import re
import resource
import sys
from pathlib import Path

from vanilla_transformer.data.pair_files import read_pairs
from vanilla_transformer.errors import RequestError
from vanilla_transformer.storage.pickles import read_pickle
from vanilla_transformer.storage.reading import read_json, read_yaml
from vanilla_transformer.storage.saved_model import load_saved_model, load_saved_tokenizer
from vanilla_transformer.visualization import attention_weights


def pairs(path):
    list(read_pairs(str(path), source_language="de", target_language="en", strict=True))


def picture(path):
    model, tokenizer = load_saved_model(path), load_saved_tokenizer(path)
    attention_weights(model, tokenizer, "\n", "x" * 70_000)


READERS = {
    **{"pairs": pairs, "json": read_json, "yaml": read_yaml, "pickle": read_pickle},
    **{"model": load_saved_model, "tokenizer": load_saved_tokenizer, "picture": picture},
}


def memory(name):
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) * 1024


def main(words):
    # Rather an error than a machine without memory.
    resource.setrlimit(resource.RLIMIT_AS, (12 * 2**30, 12 * 2**30))
    gc.disable()  # looking through millions of lists would take longer than reading them
    for kind, path in zip(words[::2], words[1::2], strict=True):
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        before = memory("VmRSS")
        said = None
        try:
            READERS[kind](Path(path))
        except RequestError as error:
            said = str(error)
        print(json.dumps([memory("VmHWM") - before, said]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
