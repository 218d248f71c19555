"""A model that lives: run folders, a journal of requests, erasure, verification.

Everything here stands around the core and is never imported by it.
"""
