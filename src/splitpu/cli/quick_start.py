"""What a process that is there for one command can leave out, so that training begins a second and a half earlier.

A program that imports the package keeps Python and torch as they are: nothing here happens in it.
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_ours: list[bool] = []  # not empty once this process is known to be there for one command


def claim_process() -> None:
    """Say that this process was started for one command."""
    _ours.append(True)


@contextmanager
def quick_start() -> Iterator[None]:
    """Import what is heavy inside the block.

    No garbage is collected there: importing torch makes hundreds of thousands of objects, none of them garbage, and
    none of them needs to be looked at again later.
    """
    if not _ours:
        yield
        return
    gc.disable()
    try:
        yield
        if "torch" in sys.modules:
            keep_compiler_out()
    finally:
        gc.freeze()
        gc.enable()


def keep_compiler_out() -> None:
    """Let torch's optimisers work without torch's compiler.

    At their first call they import it, which takes over a second and 70 MB, only to tell it that they are not to be
    compiled. Nothing is compiled here, so the functions under that wrapping are used as they are. A version of torch
    that wraps them in no way or in another one is left alone.
    """
    import torch

    if "torch._dynamo" in sys.modules:
        return
    for name in ("add_param_group", "zero_grad", "state_dict", "load_state_dict"):
        plain = getattr(torch.optim.Optimizer.__dict__[name], "__wrapped__", None)
        if plain is not None:
            setattr(torch.optim.Optimizer, name, plain)
    for kind in (torch.optim.SGD, torch.optim.Adam):  # the latter's step is that of AdamW, too
        plain = getattr(kind.__dict__["step"], "__wrapped__", None)
        if plain is not None:
            kind.step = torch.no_grad()(plain)  # type: ignore[method-assign]  # which is all the wrapping did besides
