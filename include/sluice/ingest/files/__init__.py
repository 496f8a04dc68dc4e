"""From a delivered file to its bytes: decompressed, decoded, within limits."""
