"""The command `sluice erase` with all below it, and the demonstration of an erasure."""
