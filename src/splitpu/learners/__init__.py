"""Classic learners for tables, vectors and texts: by name, cross-fitted, chosen out of fold, written as networks."""
