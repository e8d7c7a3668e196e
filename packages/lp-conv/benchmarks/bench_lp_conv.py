"""Time Lp layers against plain convolutions of the same size, and merged networks against plain large kernels."""

import argparse
import statistics
import time

import numpy as np
import torch
from torch import nn

from icl25_lp_conv import LpConv2d, convert, merge
from icl25_lp_conv.datasets.digit_canvas import place_digits, split_digits
from icl25_lp_conv.digits_task import DigitsSizes, train_on_digits
from icl25_lp_conv.models import digits_resnet

SHAPES = ((64, 7, 32, 16), (128, 7, 16, 16), (256, 7, 8, 16), (512, 7, 4, 16), (512, 7, 4, 64), (64, 15, 32, 4))


def ratios(first, second, repeats=15):
    """Milliseconds of each (median) and their ratio, measured in turn."""
    times = ([], [])
    for turn in range(repeats + 2):
        for which, function in enumerate((first, second)):
            start = time.perf_counter()
            function()
            if turn > 1:
                times[which].append(time.perf_counter() - start)
    a, b = (1e3 * statistics.median(series) for series in times)
    return a, b, statistics.median(x / y for x, y in zip(*times, strict=True))


class OfficialStyle(nn.Conv2d):
    """The mask as the formula says it: offsets built in every call, powers by `pow`, the product left to autograd."""

    def __init__(self, *arguments, sigma, **options):
        super().__init__(*arguments, **options)
        self.C = nn.Parameter(torch.eye(2).repeat(self.out_channels, 1, 1) / (sigma + 1e-4))
        self.log2p = nn.Parameter(torch.ones(self.out_channels))

    def forward(self, x):
        k1, k2 = self.kernel_size
        rows, columns = torch.meshgrid(torch.arange(k1) - (k1 - 1) / 2, torch.arange(k2) - (k2 - 1) / 2, indexing="ij")
        offsets = torch.stack([rows, columns], -1).reshape(1, -1, 2, 1)
        z = (self.C[:, None] @ offsets).abs()[..., 0]
        mask = torch.exp(-(z ** (2**self.log2p)[:, None, None]).sum(-1)).view(-1, 1, k1, k2)
        return self._conv_forward(x, self.weight * mask, self.bias)


def step(layer, x, gradient):
    """A function that makes one training step."""
    optimizer = torch.optim.AdamW(layer.parameters(), fused=True)

    def run():
        optimizer.zero_grad()
        layer(x).backward(gradient)
        optimizer.step()

    return run


def layers():
    """Training steps and inference of single layers."""
    print("layer (channels, kernel, size, batch)  step: Lp / plain   plain formula / plain   eval: Lp / plain   merged")
    for channels, k, size, batch in SHAPES:
        x = torch.randn(batch, channels, size, size, requires_grad=True)
        gradient = torch.randn(batch, channels, size, size)
        plain = nn.Conv2d(channels, channels, k, padding=k // 2)
        lp = LpConv2d(channels, channels, k, padding=k // 2, sigma=1.5)
        formula = OfficialStyle(channels, channels, k, padding=k // 2, sigma=1.5)
        _, milliseconds, trained = ratios(step(lp, x, gradient), step(plain, x, gradient))
        _, _, by_formula = ratios(step(formula, x, gradient), step(plain, x, gradient))
        lp.eval()
        merged = merge(lp)
        with torch.no_grad():
            _, _, kept = ratios(lambda lp=lp, x=x: lp(x), lambda plain=plain, x=x: plain(x))
            _, _, free = ratios(lambda merged=merged, x=x: merged(x), lambda plain=plain, x=x: plain(x))
        print(
            f"{channels:4d} {k:2d}x{k:<2d} {size:2d}x{size:<2d} {batch:2d}   {trained:.3f} ({milliseconds:.0f} ms)"
            f"   {by_formula:.3f}   {kept:.3f}   {free:.3f}",
            flush=True,
        )


def network():
    """A training step of a whole network, small kernels against large ones and large ones with masks."""
    x, y = torch.randn(50, 1, 20, 20), torch.randint(0, 10, (50,))
    models = {"3x3": digits_resnet()}
    models["7x7"] = convert(models["3x3"], p=None, min_kernel=2)
    models["Lp p=2"] = convert(models["3x3"], p=2.0, min_kernel=2)

    def train(model):
        optimizer = torch.optim.AdamW(model.parameters())

        def run():
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()

        return run

    for name in ("3x3", "Lp p=2"):
        milliseconds, reference, ratio = ratios(train(models[name]), train(models["7x7"]))
        print(f"digits network, {name}: {milliseconds:.0f} ms, plain 7x7 {reference:.0f} ms, ratio {ratio:.3f}")


def crop():
    """Inference of a trained network after cropping, against plain 7x7 kernels, and what cropping costs."""
    widths = (24, 48, 96)
    model, accuracy = train_on_digits("Lp p=2", 0, DigitsSizes(widths=widths))
    plain = convert(digits_resnet(widths=widths), p=None, min_kernel=2).eval()
    rng = np.random.default_rng(0)
    _, test = split_digits(500, 1000, rng)
    x = torch.from_numpy(place_digits(test.x, rng))
    print(f"trained p = 2 network, test accuracy {accuracy:.3f}")
    for tau in (0.0, 0.02, 0.05, 0.1):
        merged = merge(model, crop=tau)
        sizes = [m.kernel_size[0] for m in merged.modules() if isinstance(m, nn.Conv2d) and m.kernel_size[0] > 1]
        with torch.no_grad():
            correct = float((merged(x).argmax(1).numpy() == test.y).mean())
            _, _, ratio = ratios(lambda: plain(x[:100]), lambda merged=merged: merged(x[:100]))
        print(f"crop {tau}: kernels {sizes}, plain 7x7 / merged {ratio:.2f}, accuracy {correct:.3f}", flush=True)


def compiled():
    """A training step under torch.compile (inductor), Lp against plain."""
    x = torch.randn(16, 64, 32, 32, requires_grad=True)
    gradient = torch.randn(16, 64, 32, 32)
    plain, lp = nn.Conv2d(64, 64, 7, padding=3), LpConv2d(64, 64, 7, padding=3, sigma=1.5)
    steps = [step(torch.compile(layer, fullgraph=True), x, gradient) for layer in (lp, plain)]
    milliseconds, reference, ratio = ratios(*steps)
    print(f"compiled step, 64 channels 7x7 on 32x32: Lp {milliseconds:.0f} ms, plain {reference:.0f} ms, {ratio:.3f}")


PARTS = {"layers": layers, "network": network, "crop": crop, "compiled": compiled}

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("part", nargs="*", choices=[*PARTS, []], help="all parts by default")
for part in parser.parse_args().part or PARTS:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    PARTS[part]()
