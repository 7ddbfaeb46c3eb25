"""DICOM series and NIfTI files -> volumes: one patient a row, a stack of slices in the order they lie in the body."""

from splitpu.data.volumes.reader import VolumeReader, holds_volumes, is_nifti
from splitpu.data.volumes.spec import VolumeSpec

__all__ = ["VolumeReader", "VolumeSpec", "holds_volumes", "is_nifti"]
