"""The command line: one module per command, with `TEXT`, `add_arguments` and `run`."""
