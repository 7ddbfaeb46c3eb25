"""Image files as rows: each file is one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from splitpu.data.chunks import Array
from splitpu.data.image_headers import Headers, choose_spec
from splitpu.data.images import IN_WORDS, Header, ImageSpec, Remark, decode, read_header, require_pillow
from splitpu.data.readers import Accounted, FoundRows, RowFile
from splitpu.data.scanning import find_images


@dataclass(frozen=True)
class ImageReader:
    """PNG, JPEG, TIFF and WebP files."""

    store = "images"
    noun, looked_for = "image files", f"{IN_WORDS} files"
    files_a_task = 32
    fewest_for_processes = 512

    def require(self) -> None:
        """Images need pillow."""
        require_pillow()

    def find(self, folders: Sequence[str | Path]) -> FoundRows:
        """Every image file in the folders and the folders inside them."""
        found = find_images(folders)
        return FoundRows(found.files, found.skipped)

    def header(self, source: str) -> Header:
        """Size and kind of an image."""
        return read_header(source)

    def choose(self, headers: Headers, size: tuple[int, int] | None) -> ImageSpec:
        """The form for a set of images."""
        return choose_spec(headers, size)

    def stored_spec(self, stored: Mapping[str, Any]) -> ImageSpec:
        """A form from the cache."""
        return ImageSpec(**stored)

    def decode(self, source: str, spec: ImageSpec) -> tuple[Array, Sequence[Remark]]:
        """The pixels; nothing is ever remarked on."""
        return decode(source, spec), ()

    def account(
        self, files: Sequence[RowFile], remarks: Mapping[int, Sequence[Remark]], reasons: Mapping[int, str]
    ) -> Accounted:
        """Files are called what they are called."""
        return Accounted(files)
