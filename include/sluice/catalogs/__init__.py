"""Registers a pipeline's tables by name in a catalog, so that other tools know `gym.device_day`. Nothing here writes into a lake."""
