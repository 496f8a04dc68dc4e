"""A table once more: as a clone, as a release, or itself as it was; never with those who were erased."""
