"""Evidence runs: each module is a command, `python -m experiments.NAME --help`."""

import os

# XLA takes executables from its own cache for foreign ones on most Intel processors and
# says so in pages of text (openxla/xla 44565). What really fails is an exception.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
