"""The run folder: what is written where, atomically."""
