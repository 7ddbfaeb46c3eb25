"""`python -m splitpu.experiments`: the same as `splitpu reproduce`, for machines without the command-line library."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from splitpu.cli import reader_has_gone
from splitpu.errors import SplitPUError
from splitpu.experiments.command import DOCS, RESULTS, Order, carry_out, parse_numbers, parse_words


def main(argv: Sequence[str] | None = None) -> int:
    """Run what the words ask for; what a user did wrong is one sentence and code 2."""
    given = _parser().parse_args(argv)
    try:
        code = carry_out(
            Order(
                names=given.names,
                recipe=given.recipe,
                methods=parse_words(given.method) if given.method else None,
                positives=parse_numbers(given.positives, "--positives") if given.positives else None,
                seeds=parse_numbers(given.seeds, "--seeds") if given.seeds else None,
                minutes=given.minutes,
                fill=given.fill,
                results=given.results,
                cache=given.cache,
                datasets=given.datasets,
                data_dir=given.data_dir,
                docs=given.docs,
                device=given.device,
                side_by_side=given.side_by_side,
                commit=given.commit,
                only_list=given.list,
                dry_run=given.dry_run,
                choose=given.choose,
                smoke=given.smoke,
                render=given.render,
            )
        )
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        return reader_has_gone()
    except SplitPUError as error:
        print(f"splitpu: {' '.join(str(error).split())}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m splitpu.experiments", description=__doc__)
    add = parser.add_argument
    add("names", nargs="?", metavar="NAME", help="an experiment, several with commas, or all")
    add("--recipe", help="paper, default or record; all that the experiment declares if not given")
    add("--method", help="only this method (or teacher), or several with commas; see `splitpu methods`")
    add("--seeds", help="such as 0,1,2")
    add("--positives", help="such as 500,1000")
    add("--minutes", type=float, help="stop cleanly before so many minutes are over")
    add("--fill", action="store_true", help="use the minutes up, with units that may have to go on later")
    add("--results", type=Path, default=RESULTS, help="folder of the result lines (default: %(default)s)")
    add("--cache", type=Path, help="folder of finished stages, shared by all experiments")
    add("--datasets", type=Path, help="cache of the data sets; $SPLITPU_CACHE if not given")
    add("--data-dir", type=Path, help="folder of sets that are read from files; $SPLITPU_DATA if not given")
    add("--docs", type=Path, default=DOCS, help="folder that --render writes to (default: %(default)s)")
    add("--device", default="auto", help="auto, cpu or cuda")
    add("--side-by-side", type=int, default=1, metavar="K", help="units to run at once on one GPU (default: 1)")
    add("--commit", help="noted in the results where the code is not a git checkout")
    add("--list", action="store_true", help="list the units and whether they are done")
    add("--dry-run", action="store_true", help="print what would be run and how long it may take on a GPU")
    add("--choose", action="store_true", help="say which candidate the criterion picks from the lines that are there")
    add("--smoke", action="store_true", help="run every experiment for one tiny unit a method on the CPU")
    add("--render", action="store_true", help="write the result pages from the lines that are there")
    return parser


if __name__ == "__main__":
    sys.exit(main())
