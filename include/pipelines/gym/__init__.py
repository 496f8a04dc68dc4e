"""Fitness trackers of a gym's members. Everything here is made up by `maker`, which knows the truth."""
