"""Schedules run for real with torch: the only folder that imports it."""
