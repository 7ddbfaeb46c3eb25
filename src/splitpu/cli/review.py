"""Laying the images that a model is surest of into a folder, for people to look through."""

import os
import shutil
from pathlib import Path

import numpy as np
import numpy.typing as npt

from splitpu.data.scanning import ImageFile
from splitpu.errors import InputError
from splitpu.files import disk_errors_in_words


def check_review(folder: Path, top: int) -> None:
    """Refuse, before anything is computed, what could overwrite something."""
    if top < 1:
        raise InputError(f"--top {top} is not a number of images; give 1 or more.")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} exists and is not an empty folder; choose another --copy-to.")


def lay_out(
    folder: Path,
    files: tuple[ImageFile, ...],
    probabilities: npt.NDArray[np.float64],
    top: int,
    *,
    link: bool,
) -> int:
    """Copy or link the most probable images, named by rank and probability; gives how many there are."""
    chosen = np.argsort(-probabilities, kind="stable")[:top].tolist()
    digits = len(str(len(chosen)))
    with disk_errors_in_words(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for rank, row in enumerate(chosen, start=1):
            flat = files[row].name.replace("/", "__")[-150:]  # file names may not be longer than 255 bytes
            target = folder / f"{rank:0{digits}d}_{probabilities[row]:.3f}_{flat}"
            if link:
                os.symlink(files[row].path, target)
            else:
                shutil.copyfile(files[row].path, target)
    return len(chosen)
