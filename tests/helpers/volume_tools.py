"""Small volumes for tests."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, generate_uid


def volumes(truth: npt.NDArray[np.bool_], *, slices: int, side: int, seed: int = 0) -> npt.NDArray[np.uint8]:
    """Noise (n, S, H, W, 1) without a zero; positives are bright in the middle of every slice."""
    random = np.random.default_rng(seed)
    made = random.integers(1, 120, (len(truth), slices, side, side, 1)).astype(np.uint8)
    middle = slice(side // 4, side - side // 4)
    made[truth, :, middle, middle] += 100
    return made


def write_series(
    folder: Path,
    volume: npt.NDArray[np.int16],
    *,
    patient: str = "Nobody^Special",
    number: str = "HOSP-4711",
    description: str = "T1 AX",
    spacing: float = 3.0,
    names: str = "IM{:04d}",
    **tags: Any,
) -> list[Path]:
    """A DICOM series of a volume (S, H, W); slice k lies at z = k * spacing. `tags` go into every file."""
    folder.mkdir(parents=True, exist_ok=True)
    series = generate_uid()
    paths = []
    for at, values in enumerate(volume):
        paths.append(folder / names.format(at))
        stored = dicom_slice(values, patient=patient, number=number)
        stored.SeriesInstanceUID, stored.SeriesDescription = series, description
        stored.ImagePositionPatient = [-10.0, 5.0, at * spacing]
        stored.ImageOrientationPatient = [1, 0, 0, 0, 1, 0]
        stored.InstanceNumber = len(volume) - at  # scanners may count the other way
        for keyword, value in tags.items():
            setattr(stored, keyword, value[at] if isinstance(value, list) else value)
        stored.save_as(paths[-1], enforce_file_format=True)
    return paths


def dicom_slice(values: npt.NDArray[Any], *, patient: str = "", number: str = "") -> Dataset:
    """One image (H, W), or several frames (S, H, W), with nothing said about where it is."""
    stored = Dataset()
    stored.file_meta = FileMetaDataset()
    stored.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    stored.SOPClassUID = "1.2.840.10008.5.1.4.1.1.4"
    stored.SOPInstanceUID = generate_uid()
    stored.file_meta.MediaStorageSOPClassUID = stored.SOPClassUID
    stored.file_meta.MediaStorageSOPInstanceUID = stored.SOPInstanceUID
    stored.PatientName, stored.PatientID = patient, number
    stored.PatientBirthDate, stored.PatientAddress = "19610407", "12 Secret Lane"
    stored.ReferringPhysicianName, stored.InstitutionName = "Quack^Doctor", "Hidden Hospital"
    stored.AccessionNumber, stored.StudyDate = "ACC998877", "20191231"
    stored.Modality = "MR"
    stored.Rows, stored.Columns = values.shape[-2:]
    if values.ndim == 3:
        stored.NumberOfFrames = len(values)
    stored.SamplesPerPixel, stored.PhotometricInterpretation = 1, "MONOCHROME2"
    stored.BitsAllocated, stored.BitsStored, stored.HighBit, stored.PixelRepresentation = 16, 16, 15, 1
    stored.PixelData = np.ascontiguousarray(values, np.int16).tobytes()
    return stored


def scan(positive: bool, seed: int, slices: int = 4, side: int = 12) -> npt.NDArray[np.int16]:
    """A volume of 16 bits as a scanner might give it."""
    return volumes(np.array([positive]), slices=slices, side=side, seed=seed)[0, ..., 0].astype(np.int16) * 7 - 200
