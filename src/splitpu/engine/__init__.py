"""The only training loop of the package, and what it stands on."""
