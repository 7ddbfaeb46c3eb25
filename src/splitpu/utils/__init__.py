"""What everything else stands on: files, signals, text, warnings, arrays, the state of torch."""
