"""Public sets by name, and how they are fetched."""
