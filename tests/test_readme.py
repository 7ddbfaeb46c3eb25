"""The README's example runs as printed."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_the_python_example_runs_and_the_student_is_good() -> None:
    """Executed in a process of its own, as a reader would."""
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    figures = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert float(figures["student"]) > 0.9
    assert 0 < int(figures["hard"].split()[0]) < 396
