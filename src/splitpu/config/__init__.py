"""Everything a run can be told: the dataclasses, the presets, and reading and writing them. Imports no torch."""
