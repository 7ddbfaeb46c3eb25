"""Sources of data, and the one form in which the rest of the package sees them."""

from splitpu.data.array_files import read_features, read_npz
from splitpu.data.features import canonical_features
from splitpu.data.preprocessing import Preprocessing
from splitpu.data.public.datasets import NAMED_SETS, load_named
from splitpu.data.public.download import cache_folder
from splitpu.data.public.named_set import NamedSet, make_pu, true_prior
from splitpu.data.pudata import HeldOut, PUData, check_prior

__all__ = [
    "NAMED_SETS",
    "HeldOut",
    "NamedSet",
    "PUData",
    "Preprocessing",
    "cache_folder",
    "canonical_features",
    "check_prior",
    "load_named",
    "make_pu",
    "read_features",
    "read_npz",
    "true_prior",
]
