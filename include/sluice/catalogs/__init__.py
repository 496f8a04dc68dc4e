"""Registers the tables of a pipeline by name in a catalog, so that `gym.device_day` is a name in other tools. Nothing here writes into a lake."""
