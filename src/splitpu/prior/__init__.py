"""Estimating the class prior from labelled positives and unlabelled rows."""
