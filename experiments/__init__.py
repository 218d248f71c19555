"""Evidence runs: each module is a command, `python -m experiments.NAME --help`."""
