"""One self-contained HTML page from a finished run."""
