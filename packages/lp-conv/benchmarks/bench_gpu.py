"""Training steps on a GPU: Lp kernels against plain large ones, in bf16, channels_last and compiled."""

import statistics

import torch
from torch import nn

from icl25_lp_conv import convert
from icl25_lp_conv.models import build_model

BATCH, CLASSES, STEPS = 128, 100, 30


def make_step(model, x, y):
    """One compiled training step under bf16 autocast."""
    model = model.cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    compiled = torch.compile(model)

    def step():
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(compiled(x), y)
        loss.backward()
        optimizer.step()

    return step


def milliseconds(step):
    """One call, by events of the device."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    step()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end)


def compare(name, size, small_images):
    """Small, plain large and Lp kernels in turn; ratios to plain large kernels."""
    x = torch.randn(BATCH, 3, size, size, device="cuda").to(memory_format=torch.channels_last)
    y = torch.randint(0, CLASSES, (BATCH,), device="cuda")
    base = build_model(name, CLASSES, small_images)
    variants = {"base": base, "large": convert(base, p=None), "Lp p=2": convert(base, p=2.0)}
    steps = {variant: make_step(model, x, y) for variant, model in variants.items()}
    times = {variant: [] for variant in steps}
    for turn in range(STEPS + 5):
        for variant, step in steps.items():
            elapsed = milliseconds(step)
            if turn >= 5:
                times[variant].append(elapsed)
    medians = {variant: statistics.median(series) for variant, series in times.items()}
    shown = ", ".join(f"{variant} {ms:.1f} ms ({ms / medians['large']:.3f})" for variant, ms in medians.items())
    print(f"{name}, {BATCH} images of {size} x {size}: {shown}; peak {torch.cuda.max_memory_allocated() / 1e9:.1f} GB")


if torch.cuda.is_available():
    compare("torchvision:resnet18", 32, small_images=True)
    compare("torchvision:convnext_tiny", 64, small_images=False)
else:
    print("no CUDA device: nothing is measured")
