"""Certificates: what was searched for and where, what was found, sealed and chained."""
