"""The expert in the loop: samples worth a question, a page that asks them, and answers that teach the next run."""
