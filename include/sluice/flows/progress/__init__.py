"""Running a flow from where it is: its checkpoint, its batches, and whether it can go on."""
