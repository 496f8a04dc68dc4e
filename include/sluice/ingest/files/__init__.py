"""Reads a delivered file's bytes: decompressed, decoded and within limits."""
