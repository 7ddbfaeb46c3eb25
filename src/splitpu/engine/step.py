"""One optimisation step, issued kernel by kernel or replayed as one captured CUDA graph. Both compute the same."""

import gc
from contextlib import nullcontext, suppress

import torch
from torch import Tensor

from splitpu.engine.checkpoint import copied, restore_in_place, training_tensors
from splitpu.engine.data_parallel import SharedStep
from splitpu.engine.hardware import Hardware
from splitpu.engine.low_memory import LighterForward
from splitpu.engine.optimiser import WeightAverage, build_optimiser
from splitpu.engine.rows import RowStore
from splitpu.engine.stage import Batch, ByName, Stage
from splitpu.errors import SplitPUError
from splitpu.kernels.dispatch import give_up_kernels, without_waiting
from splitpu.utils.torch_state import TORCH_STATE_LOCK, StageDraws
from splitpu.views import Views


class Step:
    """The whole step of a stage: gather, views, forward, loss, backward, optimiser, weight average, sums of terms."""

    def __init__(
        self, stage: Stage, rows: RowStore, views: Views, hardware: Hardware, *, epoch: int = 0, pieces: int = 1
    ) -> None:
        self.stage, self.rows, self.hardware = stage, rows, hardware
        self._whole, self._halved = views, self._is_halved(epoch)
        self.views = views.at_half_size() if self._halved else views
        self.module = stage.task.module
        self.optimiser = build_optimiser(self.module, stage.optimiser, hardware.device)
        self.average = WeightAverage(self.module) if stage.optimiser.average > 0 else None
        self._shared = SharedStep(stage.task) if hardware.world.size > 1 else None
        self.generator = torch.Generator(hardware.device)
        self.draws = StageDraws(hardware.device)
        # Inputs and sums sit at fixed addresses, which is what a captured graph reads and writes.
        device = hardware.device
        counts = [pool.count for pool in stage.pools.values()]
        self._all_indices = torch.zeros(sum(counts), dtype=torch.int64, device=device)
        self._indices = dict(zip(stage.pools, torch.split(self._all_indices, counts), strict=True))
        self._average_weight = torch.zeros((), device=device)
        self._terms_seen: list[str] = []
        self._sums = torch.zeros(0, device=device)  # of the terms, in their order
        self._raw: ByName = {}
        self._graph: torch.cuda.CUDAGraph | None = None
        self.not_captured: str | None = None  # why, where it was tried and failed
        self.lighter: LighterForward | None = self._in_pieces(pieces) if pieces > 1 else None
        self.captured = hardware.capture and rows.resident and self.lighter is None and self._try_capture()

    def run(self, indices: ByName, rate: Tensor, average_weight: Tensor, raw: ByName) -> None:
        """Take one step on the given rows at the given rate; `raw` holds the rows that were read ahead."""
        torch._foreach_copy_(list(self._indices.values()), [indices[name] for name in self._indices])
        for group in self.optimiser.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].copy_(rate)
            else:
                group["lr"] = float(rate)
        if self.average is not None:
            self._average_weight.copy_(average_weight)
        self._raw = raw
        if self._graph is not None:
            self._graph.replay()
        else:
            with self.draws.lent():
                self._compute()

    def begin(self, epoch: int) -> None:
        """See images at the size that this epoch asks for; where that is another one, the step is captured anew."""
        if self._is_halved(epoch) == self._halved:
            return
        self._halved = not self._halved
        self.views = self._whole.at_half_size() if self._halved else self._whole
        if self.captured:
            self._graph = None  # and with it its memory, before the next one takes its own
            self.captured = self._try_capture()

    def _is_halved(self, epoch: int) -> bool:
        return epoch < round(self.stage.half_size * self.stage.epochs)

    def take_means(self, steps: int) -> dict[str, float]:
        """Mean of every term since the last call; the one moment of an epoch when the host waits for the device."""
        means = (self._sums / steps).tolist()
        self._sums.zero_()
        return dict(zip(self._terms_seen, means, strict=True))

    @torch.no_grad()
    def forward_only(self, indices: ByName, raw: ByName) -> None:
        """Pass rows through the module in training mode, only to renew its batch-norm statistics."""
        self._raw = raw
        with self.draws.lent():
            self._terms(indices)

    def lighten(self, before: ByName) -> bool:
        """Go back to the state `before`, and from now on take a way that needs less memory; False if there is none."""
        self._graph, self.captured = None, False
        self.go_back(before)
        if self.lighter is not None and not 1 < self.lighter.pieces < len(self._all_indices):
            return False  # pieces could not become smaller
        self.lighter = self._in_pieces(2 if self.lighter is None else 2 * self.lighter.pieces)
        return True

    def go_back(self, before: ByName) -> None:
        """Go back to the state `before`, and free what a step that failed half-way still holds."""
        self._raw = {}
        self.optimiser.zero_grad(set_to_none=True)
        if not any(name.startswith("optimiser/") for name in before):
            self.optimiser.state.clear()  # which may be half made
        with TORCH_STATE_LOCK:  # not while another run of this process is being captured
            gc.collect()  # a graph that has failed holds its activations in circles
            if self.hardware.device.type == "cuda":
                torch.cuda.empty_cache()
        self._restore(before)

    def live_tensors(self) -> dict[str, Tensor]:
        return training_tensors(self.module, self.optimiser, self.average)

    def _in_pieces(self, pieces: int) -> LighterForward:
        some = torch.arange(min(4, len(self.rows)), device=self.hardware.device)
        return LighterForward(self.module, pieces, self.views.plain(self.rows.gather(some)))

    def _terms(self, indices: ByName) -> dict[str, Tensor]:
        lighter = nullcontext() if self.lighter is None else self.lighter.active()
        # Without gradients there is nothing to exchange but what networks exchange anyway.
        shared = self._shared if torch.is_grad_enabled() else None
        step = self.stage.task.step if shared is None else shared.terms
        with self.hardware.autocast(), lighter:
            raw = self._raw
            if not raw:
                # All groups at once: on a GPU ten rows by themselves take longer than five hundred.
                together = self._all_indices if indices is self._indices else torch.cat(list(indices.values()))
                parts = torch.split(self.rows.gather(together), [len(rows) for rows in indices.values()])
                raw = dict(zip(indices, parts, strict=True))
            batch = {name: Batch(rows, raw[name]) for name, rows in indices.items()}
            return step(batch, self.views, self.generator)

    def _compute(self) -> None:
        self.optimiser.zero_grad(set_to_none=True)
        terms = self._terms(self._indices)
        if self._shared is not None:
            self._shared.backward(terms["loss"])
        else:
            # No gradient to begin with: torch would import its compiler to compare shapes, half a second of the start.
            terms["loss"].backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        if self.average is not None:
            self.average.update(self._average_weight)
        with torch.no_grad():
            if not self._terms_seen:
                self._terms_seen, self._sums = list(terms), torch.zeros(len(terms), device=self.hardware.device)
            self._sums.add_(torch.stack([terms[name].detach().float() for name in self._terms_seen]))

    def _try_capture(self) -> bool:
        before, without_kernels = copied(self.live_tensors()), False
        try:
            with self.draws.lent():
                self._capture()
        except SplitPUError:
            raise
        except Exception as error:  # a compiler raises anything at all; what is wrong with the step itself comes again
            self._graph = None
            without_kernels = give_up_kernels(self.hardware.device, error)
            # Its first line; torch's account of memory is one very long line and is left out.
            why = next(iter(str(error).splitlines()), type(error).__name__)
            why = "it ran out of memory" if isinstance(error, torch.OutOfMemoryError) else why
            self.not_captured = None if without_kernels else why
        self._restore(before)
        return self._try_capture() if without_kernels else self._graph is not None

    def _capture(self) -> None:
        for name, pool in self.stage.pools.items():
            some = torch.from_numpy(pool.rows).to(self.hardware.device)
            self._indices[name].copy_(some.repeat(-(-pool.count // len(some)))[: pool.count])
        # This thread's own stream if it has one, else a new one: the device's usual stream cannot be captured.
        # Libraries keep one workspace a stream, and what is captured goes on using it. Runs that are replayed at the
        # same time must therefore never be captured on the same stream, as they would be on torch's own choice.
        device = self.hardware.device
        stream = torch.cuda.current_stream(device)
        if stream == torch.cuda.default_stream(device):
            stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._warm_up()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.generator)
        self.optimiser.zero_grad(set_to_none=True)
        # "thread_local": other threads, which may be training on this device, are free to do what a capture must not.
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            self._compute()
        self._graph = graph

    def _warm_up(self) -> None:
        """Let libraries choose their algorithms and the optimiser allocate its state, which cannot be captured."""
        # This takes two steps. The first does what is done only once, and loads libraries while kernels are still being
        # compiled; so it may run without the kernels and need more memory than later ones. The second is like all
        # others.
        with suppress(torch.OutOfMemoryError), without_waiting():
            self._compute()
        self._compute()

    def _restore(self, before: ByName) -> None:
        """Undo what steps did, in place; optimiser state that did not exist before starts at zero."""
        live = self.live_tensors()
        with torch.no_grad():
            for name in live.keys() - before.keys():
                live[name].zero_()
        restore_in_place({name: live[name] for name in before}, before)
        self._sums.zero_()
