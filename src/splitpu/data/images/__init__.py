"""Image files: finding, decoding and keeping them; the readers that folders and volumes share."""
