"""Settings of the whole suite, before anything imports torch."""

import os

# Tests run side by side; threads that wait for each other on busy cores are many times slower.
os.environ.setdefault("OMP_NUM_THREADS", "1")
