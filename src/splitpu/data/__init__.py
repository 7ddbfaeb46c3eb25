"""Sources of data, and the one form in which the rest of the package sees them."""

from splitpu.data.array_files import read_features as read_features
from splitpu.data.array_files import read_npz as read_npz
from splitpu.data.features import canonical_features as canonical_features
from splitpu.data.preprocessing import Preprocessing as Preprocessing
from splitpu.data.public.datasets import NAMED_SETS as NAMED_SETS
from splitpu.data.public.datasets import load_named as load_named
from splitpu.data.public.download import cache_folder as cache_folder
from splitpu.data.public.named_set import NamedSet as NamedSet
from splitpu.data.public.named_set import make_pu as make_pu
from splitpu.data.public.named_set import true_prior as true_prior
from splitpu.data.pudata import HeldOut as HeldOut
from splitpu.data.pudata import PUData as PUData
from splitpu.data.pudata import check_prior as check_prior
