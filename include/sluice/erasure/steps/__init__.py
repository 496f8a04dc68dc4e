"""What an erasure does, a module a step: each finds what is left to do, so that a second time it does nothing."""
