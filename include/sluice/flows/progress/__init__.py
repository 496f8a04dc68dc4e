"""Runs a flow from where it stopped: its checkpoint, its batches, and whether it can go on."""
