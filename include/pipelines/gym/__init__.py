"""The fitness trackers of a gym's members. `maker` makes up all data, so it knows what the tables must hold."""
