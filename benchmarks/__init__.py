"""Measurements that are not tests: `python -m benchmarks.encode`."""
