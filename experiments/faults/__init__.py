"""Faults at every file operation of every command on a run, and what is left of it.

    inject     a fault at the N-th operation: a kill, half a write, an error, no room
    hooks      which calls are operations
    disk       what is left when the power fails: only what was synced
    world      a tiny run on a tiny store, and bytes that give a sample away
    commands   what is cut, and what comes after a cut
    scenarios  where each command starts, what it asks for and must leave
    ends       what became of the requests
    judge      what must hold right after the cut, and after the next command
    quick      what makes thousands of cuts bearable
    cuts       one cut, and all those of a scenario
    sweep      all cuts of all scenarios

`python -m experiments.faults` makes all cuts, `tests/test_faults.py` some of them.
"""
