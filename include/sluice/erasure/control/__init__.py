"""The canaries: made-up people planted in every kind of store, found before and gone after, or the scan proves nothing."""
