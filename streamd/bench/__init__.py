"""Benchmarks: what this machine can do, measured with the real daemon's parts. `streamd bench` prints what the functions here return."""
