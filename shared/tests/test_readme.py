"""The examples of the README run as they stand."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_python_examples_run_in_order(tmp_path):
    examples = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)
    assert len(examples) >= 6
    script = tmp_path / "examples.py"
    script.write_text("\n".join(examples))
    done = subprocess.run([sys.executable, script.name], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "| The harmful rows are found. | 0.95 (Table 2) |" in done.stdout
    assert "icl25-example mean: error: nothing.txt not found." in done.stderr
