"""Run the command line as `python -m vanilla_transformer.cli`."""

import sys

from .parser import main

sys.exit(main())
