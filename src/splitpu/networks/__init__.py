"""Networks: ours by name, the user's own, and pretrained ones."""
