"""DICOM series and NIfTI files -> volumes: one patient a row, a stack of slices in the order they lie in the body."""
