"""Sources of data, and the one form in which the rest of the package sees them."""
