"""Traces: written for the Perfetto UI, and read from torch.profiler."""
