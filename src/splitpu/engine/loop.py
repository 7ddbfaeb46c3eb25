"""The training loop. There is no other."""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from splitpu.engine import stage as stages
from splitpu.engine.checkpoint import CheckpointStore, StageState, copied, restore_in_place, under
from splitpu.engine.data_parallel import shared_work
from splitpu.engine.distributed import World
from splitpu.engine.hardware import Hardware, blocks_kept
from splitpu.engine.optimiser import average_weight_at, batch_norms, rate_at
from splitpu.engine.rows import RowStore, all_stream, read_batches
from splitpu.engine.stage import ByName, EpochRecord, Observer, Stage, StageOutcome
from splitpu.engine.step import Step
from splitpu.errors import InputError, Interrupted, about_memory
from splitpu.kernels.dispatch import allow_kernels, any_kernel_runs_on, give_up_kernels
from splitpu.utils.torch_state import derive_seed
from splitpu.utils.warnings import warn_where_called
from splitpu.views import Views

_JUDGED_AFTERWARDS = "student"  # one that learned nothing, for whatever reason, is trained again with smaller steps
_BETWEEN_CHECKPOINTS = 10.0  # seconds, on a GPU
_ENOUGH_BATCHES = 32  # for the statistics of averaged weights: sixteen thousand images, each with all its pixels
_HOST = torch.device("cpu")


def stop_if_diverged(stage: Stage, record: EpochRecord, world: World) -> None:
    """End the stage, in all processes, if the loss of this epoch is no number and nothing before it would be kept."""
    # Weights that became NaN stay NaN. Looking at the loss is enough: all that moves weights goes through it.
    loss = record.terms.get("loss", 0.0)
    if stages.kind_of(stage.name) == _JUDGED_AFTERWARDS or (stage.keeps_best_epoch and record.epoch > 1):
        return
    if world.any(not math.isfinite(loss)):
        rate = stages.setting_of(stage, "optimiser.rate")
        wrong = f"the loss of stage {stage.name} is not a finite number in epoch {record.epoch} of {record.epochs}"
        advice = "look for extreme values in X, and if the network is your own, at what it returns for them"
        raise InputError(f"{wrong} ({loss}): lower {rate}, {advice}")


@dataclass(frozen=True)
class _Course:
    """Everything that is settled before an epoch begins: the rows of every step, and how far each step moves."""

    stage: Stage
    epoch: int
    plan: ByName  # row numbers by pool, a line a step, in host memory
    on_device: ByName  # the same on the device
    rates: list[float]
    rate_tensor: Tensor
    averages: Tensor  # how far each step moves the average of weights


class Engine:
    """Runs stages over one set of rows; remembers finished ones and goes on with unfinished ones."""

    def __init__(
        self,
        rows: RowStore,
        views: Views,
        hardware: Hardware,
        *,
        seed: int,
        store: CheckpointStore,
        observer: Observer,
        checkpoint_every: int = 1,
        pieces: int = 0,
    ) -> None:
        self.rows, self.views, self.hardware = rows, views, hardware
        self.seed, self.store, self.observer = seed, store, observer
        self.checkpoint_every = checkpoint_every
        self.pieces = pieces  # 0 = one, and more where memory runs out
        self._readers = hardware.world if all_stream(rows, hardware.world) else World()  # who reads a batch together
        self._lighter: list[tuple[int, str]] = []  # pieces, and in words, of every stage that had to save memory
        self.captured_stages: list[bool] = []  # for every stage trained so far: whether its step was captured
        self._told_of_capture = False
        self._saved = -math.inf  # when the last checkpoint was
        self._ahead: _Course | None = None  # the next epoch's, prepared early
        self.history: list[EpochRecord] = []  # of every stage so far, replayed ones included

    def run(self, stage: Stage) -> StageOutcome:
        """Train the stage's module to its last epoch, or take it from the store; the weights end in the module."""
        # Also of a stage found finished: its network's logits are then those it had when it was trained, to the bit.
        allow_kernels(stage.task.module, self.hardware.kernels)
        saved = self._loaded(stage)
        self.observer.stage_started(stage, saved.epoch if saved else 0)
        for record in saved.history if saved else ():
            self.observer.epoch_done(record)
        if saved is not None and saved.finished:
            stage.task.module.load_state_dict(saved.section("module"))
            outcome = StageOutcome(saved.history, self._on_device(saved.section("memory")))
        else:
            try:
                memory = self.hardware.current_gpu() if self.hardware.device.type == "cuda" else blocks_kept()
                with self.hardware.thread_limit(), memory, shared_work(stage.task.module, self.hardware.world):
                    outcome = self._train(stage, saved)
            except (RuntimeError, MemoryError) as error:
                if not about_memory(error):
                    raise
                raise InputError(_out_of_memory(stage, self.hardware)) from error
            finally:
                self._ahead = None  # a stage that ended early leaves one behind, which would stay in memory
                self.store.flush()
        stage.task.module.eval()
        self.history += outcome.history
        self.observer.stage_done(stage, outcome)
        return outcome

    def describe(self) -> str:
        """The choices that were made, as `graph/bf16/resident` or the like."""
        # Where every stage was found finished, how its steps were taken is not known: `stored`.
        taken = "graph" if all(self.captured_stages) else "eager"
        choices = [
            taken if self.captured_stages else "stored",
            "bf16" if self.hardware.bf16 else "fp32",
            "resident" if self.rows.resident else "streamed",
        ]
        if self.hardware.kernels and any_kernel_runs_on(self.hardware.device):
            choices.append("fused")
        if self._lighter:
            choices.append(max(self._lighter)[1])
        return "/".join(choices)

    def _loaded(self, stage: Stage) -> StageState | None:
        """The stage from the store, which several processes must have found in the same state."""
        saved, world = self.store.load(stage), self.hardware.world
        found = {"epoch": -1, "finished": 0} if saved is None else {"epoch": saved.epoch, "finished": saved.finished}
        if world.size > 1 and not world.same_everywhere(found):
            wrong = f"the processes see different checkpoints of {stage.name} in {self.store.folder}"
            raise InputError(f"{wrong}: put the run folder where all of them can read it.")
        return saved

    def _train(self, stage: Stage, saved: StageState | None) -> StageOutcome:
        module = stage.task.module.train()
        begun = saved.epoch if saved else 0
        step = Step(stage, self.rows, self.views, self.hardware, epoch=begun, pieces=self.pieces)
        if step.not_captured is not None and not self._told_of_capture:
            self._told_of_capture = True  # the stages that follow most likely cannot be captured for the same reason
            found = f"the step of stage {stage.name} could not be captured ({step.not_captured})"
            warn_where_called(f"{found}: such steps run uncaptured, which takes longer and changes no result.")
        outcome = StageOutcome()
        if saved is not None:
            step.optimiser.prepare()
            restore_in_place(step.live_tensors(), saved.tensors)
            outcome = StageOutcome(saved.history, self._on_device(saved.section("memory")))
        self.hardware.world.agree_on(step.live_tensors().values())
        stopped = False
        for epoch in range(len(outcome.history), stage.epochs):
            step.begin(epoch)
            record = self._epoch_that_fits(stage, step, epoch)
            stop_if_diverged(stage, record, self.hardware.world)
            if stage.after_epoch is not None:
                module.eval()
                stopped = stage.after_epoch(record, outcome.memory)
                module.train()
            outcome.history.append(record)
            last = stopped or epoch + 1 == stage.epochs
            if not last and (epoch + 1) % self.checkpoint_every == 0 and self._checkpoint_pays():
                tensors = step.live_tensors() | under("memory", outcome.memory)
                self.store.save(stage, StageState(epoch + 1, False, outcome.history, tensors))
            self.observer.epoch_done(record)
            if stopped:
                break
        self.captured_stages.append(step.captured)
        if step.lighter is not None:  # only what it says is kept: it would hold on to the networks
            self._lighter.append((step.lighter.pieces, step.lighter.describe()))
        if step.average is not None:
            step.average.copy_into_module()
            self._recompute_batch_norm(stage, step)
        tensors = under("module", module.state_dict()) | under("memory", outcome.memory)
        self.store.save(stage, StageState(len(outcome.history), True, outcome.history, tensors))
        return outcome

    def _checkpoint_pays(self) -> bool:
        """On a GPU an epoch may take less time than to copy everything: there, one every ten seconds is enough."""
        now = time.monotonic()
        if self.hardware.device.type == "cuda" and now - self._saved < _BETWEEN_CHECKPOINTS:
            return False
        self._saved = now
        return True

    def _epoch_that_fits(self, stage: Stage, step: Step, epoch: int) -> EpochRecord:
        """Take an epoch. Where memory runs out, take it again from its start in a way that needs less."""
        # Once captured, a step has all the memory it will ever need, and there is nothing to go back for.
        before = {} if step.captured else copied(step.live_tensors())
        record, way = self._attempt(stage, step, epoch, before), step.lighter
        while record is None:
            if step.captured or not step.lighten(before):
                raise InputError(_out_of_memory(stage, self.hardware))
            record = self._attempt(stage, step, epoch, before)
        if step.lighter is not None and step.lighter is not way:
            found = f"{self.hardware.describe()} ran out of memory in stage {stage.name}: it continues more slowly"
            warn_where_called(f"{found} with {step.lighter.describe()}, which does not change what is computed.")
        return record

    def _attempt(self, stage: Stage, step: Step, epoch: int, before: ByName) -> EpochRecord | None:
        """Take an epoch; None if memory ran out. What the error held on to is free again when this returns."""
        try:
            return self._epoch(stage, step, epoch)
        except Exception as error:
            if self.hardware.world.size > 1:  # the other processes wait for this one in the middle of their step
                raise
            if isinstance(error, torch.OutOfMemoryError):
                return None
            # A captured step is compiled already, and has nothing to go back to.
            if step.captured or not give_up_kernels(self.hardware.device, error):
                raise
        step.go_back(before)
        return self._attempt(stage, step, epoch, before)

    def _epoch(self, stage: Stage, step: Step, epoch: int) -> EpochRecord:
        started = time.perf_counter()
        course, self._ahead = self._ahead, None
        if course is None or course.stage is not stage or course.epoch != epoch:
            course = self._course(stage, epoch)
        step.generator.manual_seed(derive_seed(self.seed, stage.name, epoch, "views"))
        step.draws.seed(derive_seed(self.seed, stage.name, epoch, "module"))
        steps = len(course.rates)
        for i, (rows, raw) in enumerate(self._batches(course.plan, course.on_device)):
            step.run(rows, course.rate_tensor[i], course.averages[i], raw)
            self.observer.step_done(stage, epoch, i, steps)
            if self.hardware.world.any(self.observer.should_stop()):
                raise Interrupted(f"stopped during {stage.name}, epoch {epoch + 1}; the epochs before it are saved.")
        if epoch + 1 < stage.epochs and self.rows.resident:
            self._ahead = self._course(stage, epoch + 1)  # while a GPU is still busy with the steps it was given
        terms, seconds = step.take_means(steps), round(time.perf_counter() - started, 4)
        return EpochRecord(stage.name, epoch + 1, stage.epochs, seconds, course.rates[-1], terms)

    def _course(self, stage: Stage, epoch: int) -> _Course:
        steps, device = stages.steps_per_epoch(stage.pools, stage.leading), self.hardware.device
        plan = stages.epoch_plan(stage.pools, steps, derive_seed(self.seed, stage.name, epoch, "rows"), _HOST)
        numbers, total = range(epoch * steps, (epoch + 1) * steps), stage.epochs * steps
        rates = [rate_at(stage.optimiser, number, total) for number in numbers]
        averages = [average_weight_at(stage.optimiser.average, number) for number in numbers]
        rate_tensor = torch.tensor(rates, dtype=torch.float64).to(device, torch.float32)
        average_tensor = torch.tensor(averages, dtype=torch.float32).to(device)
        return _Course(stage, epoch, plan, self._on_device(plan), rates, rate_tensor, average_tensor)

    def _batches(self, plan: ByName, on_device: ByName) -> Iterator[tuple[dict[str, Tensor], dict[str, Tensor]]]:
        """Row numbers on the device, step by step, and the rows themselves where they have to be read ahead."""
        for i, raw in enumerate(read_batches(self.rows, plan, self._readers)):
            yield {name: rows[i] for name, rows in on_device.items()}, raw

    def _recompute_batch_norm(self, stage: Stage, step: Step) -> None:
        """Gather batch-norm statistics anew: those of the live weights, even averaged, do not fit averaged weights."""
        layers = batch_norms(stage.task.module)
        if not layers:
            return
        momenta = [layer.momentum for layer in layers]
        for layer in layers:
            layer.reset_running_stats()
        steps = min(_ENOUGH_BATCHES, stages.steps_per_epoch(stage.pools, stage.leading))
        seed = derive_seed(self.seed, stage.name, "batch-norm")
        plan = stages.epoch_plan(stage.pools, steps, seed, _HOST)
        step.generator.manual_seed(seed)
        for number, (rows, raw) in enumerate(self._batches(plan, self._on_device(plan)), start=1):
            for layer in layers:
                layer.momentum = 1 / number  # a plain mean over all batches, without asking the device for their number
            step.forward_only(rows, raw)
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum

    def _on_device(self, tensors: ByName) -> dict[str, Tensor]:
        return {name: tensor.to(self.hardware.device) for name, tensor in tensors.items()}


def _out_of_memory(stage: Stage, hardware: Hardware) -> str:
    """Says what to lower when nothing exact is left to try. Smaller batches would be another training: users decide."""
    rows = ", ".join(f"{pool.count} {name}" for name, pool in stage.pools.items())
    lower = f"lower {stages.setting_of(stage, 'batch_size')} (and positives_per_batch if that is set)"
    advice = f"{lower}, set engine.residence=host if the data fill it, or take a smaller network."
    return f"{hardware.describe()} ran out of memory in stage {stage.name} with {rows} per step: {advice}"
