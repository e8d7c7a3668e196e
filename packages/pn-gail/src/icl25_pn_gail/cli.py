"""The command line: parse, call, print."""

from collections.abc import Sequence
from dataclasses import dataclass

from icl25_shared.cli import CommonFlags, InputError, Output, run_cli


@dataclass(frozen=True, kw_only=True)
class Estimate(CommonFlags):
    """FILL IN: the verb of the method, on the user's own data. This one averages normal draws."""

    n_samples: int = 1000
    """How many draws to average."""

    def run(self) -> Output:
        """Draw, average, and say what came out."""
        import numpy as np

        from icl25_pn_gail.means import running_mean

        if self.n_samples < 1:
            raise InputError(f"--n-samples must be at least 1, found {self.n_samples}")
        mean = running_mean(np.random.default_rng(self.seed).standard_normal(self.n_samples))[-1]
        data = {"n_samples": self.n_samples, "mean": float(mean)}
        return Output(data, [f"mean of {self.n_samples} draws: {mean:.4g}"])


@dataclass(frozen=True, kw_only=True)
class Demo(CommonFlags):
    """Show the paper's point on data that needs no download."""

    def run(self) -> Output:
        """Run the demonstration."""
        from icl25_pn_gail.demo import run_demo

        return run_demo(self)


@dataclass(frozen=True, kw_only=True)
class Reproduce(CommonFlags):
    """Run the paper's experiment over several seeds, at a scale for two cores."""

    n_seeds: int = 3
    """How many seeds to average over."""

    def run(self) -> Output:
        """Run the experiment."""
        from icl25_pn_gail.reproduce import run_reproduce

        return run_reproduce(self)


VERBS = {"estimate": Estimate, "demo": Demo, "reproduce": Reproduce}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    return run_cli("icl25-pn-gail", "FILL IN: what the command does, in one sentence.", VERBS, argv)
