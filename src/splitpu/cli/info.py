"""`splitpu info`."""

from typing import Any

from splitpu.cli.output import print_facts, print_json, print_table
from splitpu.cli.result_table import show_result
from splitpu.files import in_a_command
from splitpu.runs.folder import RunFolder


def run_info(run: str | None, *, json: bool) -> int:
    """This installation, or a run."""
    if run is None:
        return _show_installation(json=json)
    return _show_run(RunFolder.find_one(run), json=json)


def _show_installation(*, json: bool) -> int:
    from splitpu.cli.datasets import sets_here
    from splitpu.config import EngineConfig, preset_names
    from splitpu.data import cache_folder
    from splitpu.engine.hardware import Hardware
    from splitpu.networks import network_names
    from splitpu.runs.environment import source_commit, versions

    facts: dict[str, Any] = {
        **versions(),
        "commit": source_commit(),
        "device": Hardware.choose("auto", EngineConfig()).describe(),
        "networks": list(network_names()),
        "presets": preset_names(),
        "cache": str(cache_folder()),
    }
    if json:
        print_json({**facts, "sets": sets_here()})
        return 0
    print_facts({name: ", ".join(value) if isinstance(value, list) else value or "-" for name, value in facts.items()})
    print_table(sets_here(), ("name", "what", "state"))
    return 0


def _show_run(folder: RunFolder, *, json: bool) -> int:
    request, config = folder.request(), folder.config()
    source = request.source
    asked: dict[str, Any] = {
        "run": str(folder.path),
        "state": folder.state,
        "data": source.where,
        "scenario": source.scenario,
        "method": config.method,
        "prior": request.prior,
        "preset": request.preset,
        "backbone": _backbone(folder, request.backbone),
        **({} if config.members == 1 else {"members": config.members}),
        "seed": request.seed,
        "device": request.device,
    }
    lines = folder.read_metrics()
    if lines and not folder.finished:
        last = lines[-1]
        asked["reached"] = f"{last['stage']}, epoch {last['epoch']} of {last['epochs']}"
    if json:
        print_json({**asked, "result": folder.read_result() if folder.finished else None})
        return 0
    # What was reached says these again, and more of them.
    repeated = ("run", "prior") if folder.finished else ()
    print_facts({name: _in_words(value) for name, value in asked.items() if name not in repeated})
    if folder.finished:
        show_result(folder, folder.read_result(), json=False)
    else:
        print(f"continue with: splitpu fit --resume {in_a_command(folder.path)}")
    return 0


def _backbone(folder: RunFolder, asked: str) -> str:
    """What was asked for and, of a finished run, which network that turned out to be."""
    used = folder.read_result()["network"] if folder.finished else asked
    return asked if used == asked else f"{asked}: {used}"


def _in_words(value: object) -> object:
    if value is None:
        return "not given"
    return f"{value:.4g}" if isinstance(value, float) else value
