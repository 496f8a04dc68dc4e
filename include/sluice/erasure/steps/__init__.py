"""The steps of an erasure, one module each. Each step finds what is left to do, so that repeating it does nothing."""
