import json
import subprocess
import sys


def run(*arguments):
    command = [sys.executable, "-m", "icl25_pn_gail", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_estimate_prints_json_alone():
    done = run("estimate", "--n-samples", "10", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["n_samples"] == 10


def test_bad_number_of_samples_is_one_line():
    done = run("estimate", "--n-samples", "0")
    assert done.returncode == 2
    assert done.stderr == "icl25-pn-gail estimate: error: --n-samples must be at least 1, found 0\n"
