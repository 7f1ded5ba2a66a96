"""Stages: what the engine calls for F, B, I and W."""
