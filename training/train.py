"""Train on several devices: accelerate launch training/train.py RECIPE [overrides].

The same as `vanilla-transformer train`, as a file that `accelerate launch` can start.
"""

import sys

from vanilla_transformer.cli import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
