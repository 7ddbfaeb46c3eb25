"""Tables: reading, encoding and looking through them."""
