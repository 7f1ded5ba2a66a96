"""Tests of the trace writers and readers."""
