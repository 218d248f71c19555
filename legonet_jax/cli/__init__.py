"""The command line: one module per command, each with `register` and `run`."""
