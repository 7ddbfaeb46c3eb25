"""Which estimate of the prior to recommend, judged on other data than the benchmark's: a place to choose and to tune.

python benchmarks/prior_development.py --out development.jsonl           some 20 minutes on one core; goes on if cut off
python benchmarks/prior_development.py --out development.jsonl --only-show

Wine, iris, digits and MNIST in groupings that prior.py does not use, breast-cancer with the classes exchanged, and made-up
mixtures. Every case holds what the estimators say on the scores of several cross-fittings, one by one and on their mean,
so candidates can be compared without training anything again. Look at the large misses, too: those cost accuracy.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from case_runner import Key, add_options, run_cases, table
from drawn_sets import PRIORS, Setting, drawn_from

from splitpu import load_named
from splitpu.prior.estimate import MEMBERS, shares_by_members
from splitpu.prior.scores import pu_scores
