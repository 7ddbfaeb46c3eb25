"""Every table and figure of the paper by one command: declared in TOML, run unit by unit, rendered from the results."""
