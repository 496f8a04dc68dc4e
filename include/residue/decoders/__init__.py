"""The decoders of files, by kind."""
