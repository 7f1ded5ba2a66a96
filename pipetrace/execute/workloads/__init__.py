"""Workloads: what a run computes."""
