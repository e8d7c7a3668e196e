"""The base of all Lp layers: a trainable mask for each output channel, multiplied into the kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Self

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.forward_ad import unpack_dual

from icl25_lp_conv.growth import centre, grown_kernel_size, grown_padding
from icl25_lp_conv.masked_product import masked_product
from icl25_lp_conv.masks import init_C, lp_mask
from icl25_lp_conv.replacement import carry_over, conv_arguments, make_undrawn, weight_hooks
from icl25_lp_conv.shapes import describe_shapes

__all__ = ["LpLayer", "MaskSharing", "Transfer"]

MaskSharing = Literal["channel", "group", "layer"]
Transfer = Literal["copy", "exact", "none"]

# Old taps are divided by their mask values in an exact transfer; below this they would outgrow single precision.
_SMALLEST_DIVISOR = 1e-4


class _Cached(NamedTuple):
    """A masked weight and what it was made of: aliases that keep the storage from being reused, and their versions."""

    key: tuple[Any, ...]
    sources: tuple[Tensor, ...]
    weight: Tensor


class LpLayer(nn.Module):
    """What the Lp convolutions share: a mask for each output channel, by which the kernel is multiplied.

    The layers take the arguments of the torch layers whose names they extend, and these keyword arguments besides.
    Parameters are ``weight`` and ``bias`` as in torch, ``C`` (n_masks, n, n) and ``log2p`` (n_masks,), with n_masks
    the number of output channels unless masks are shared; so checkpoints of the authors' code load as they are.

    Outside of training and where no gradient is asked for, the masked kernel is computed once and kept until a
    parameter changes. (A change through ``parameter.data`` is seen when the layer next goes into training mode.)

    Args:
        *args: As in torch: ``in_channels, out_channels, kernel_size, stride, padding, ...``.
        p: Initial exponent of the masks, > 0: 2 is a Gaussian, 16 nearly a box. None leaves the mask out (a plain
            large-kernel convolution, without ``C`` and ``log2p``).
        sigma: Initial radius of the masks in taps, > 0, one for all axes or one for each; a quarter of the kernel size
            if None.
        learn_p: Whether the exponents are trained.
        learn_C: Whether the shape matrices are trained.
        mask_sharing: One mask for each output channel, for each group of the convolution, or for the layer.
        log2p_min: Floor to which ``clamp_masks_`` lifts ``log2p`` in this layer; its own default if None.
        **kwargs: As in torch.

    Raises:
        ValueError: If p or sigma is not positive and finite, ``log2p_min`` is not finite, or ``mask_sharing`` is
            unknown.
        TypeError: If p is no number.

    Source: Lp-convolution (Kwon et al., ICLR 2025).
    """

    plain: ClassVar[type[nn.Module]]
    """The torch layer that this one extends."""

    in_channels: int
    out_channels: int
    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: str | tuple[int, ...]
    dilation: tuple[int, ...]
    output_padding: tuple[int, ...]
    groups: int
    padding_mode: Any
    transposed: bool
    weight: Tensor
    bias: Tensor | None
    C: nn.Parameter | None
    log2p: nn.Parameter | None

    def __init__(
        self,
        *args: Any,
        p: float | None = 2.0,
        sigma: float | Sequence[float] | None = None,
        learn_p: bool = True,
        learn_C: bool = True,
        mask_sharing: MaskSharing = "channel",
        log2p_min: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        if p is not None and not isinstance(p, int | float):
            raise TypeError(f"p must be a number or None, found {p!r}")
        if p is not None and not (math.isfinite(p) and p > 0):
            raise ValueError(f"p must be positive and finite, or None for no mask, found {p}")
        counts = {"channel": self.out_channels, "group": self.groups, "layer": 1}
        if mask_sharing not in counts:
            raise ValueError(f"mask_sharing must be one of {', '.join(counts)}, found {mask_sharing!r}")
        n = len(self.kernel_size)
        radii = [k / 4 for k in self.kernel_size] if sigma is None else sigma
        self.init_p = p
        self.init_sigma = tuple(radii) if isinstance(radii, Sequence) else (float(radii),) * n
        if len(self.init_sigma) != n:
            raise ValueError(f"sigma must be one number or {n}, found {len(self.init_sigma)}")
        if log2p_min is not None and not math.isfinite(log2p_min):
            raise ValueError(f"log2p_min must be finite, found {log2p_min}")
        self.mask_sharing: MaskSharing = mask_sharing
        self.log2p_min = log2p_min
        self._cached: _Cached | None = None
        C = init_C(counts[mask_sharing], self.init_sigma, dtype=self.weight.dtype, device=self.weight.device)
        self.register_parameter("C", None if p is None else nn.Parameter(C, requires_grad=learn_C))
        log2p = None if p is None else nn.Parameter(C.new_full(C.shape[:1], math.log2(p)), requires_grad=learn_p)
        self.register_parameter("log2p", log2p)

    def reset_parameters(self) -> None:
        """Draw weight and bias afresh, as torch does, and set the masks to their initial shape."""
        super().reset_parameters()  # ty: ignore[missing-attribute]
        if hasattr(self, "log2p"):  # the constructor of torch calls this before there are masks
            self._reset_masks()

    @torch.no_grad()
    def _reset_masks(self) -> None:
        if self.C is not None and self.log2p is not None and self.init_p is not None:
            self.C.copy_(init_C(len(self.C), self.init_sigma, dtype=self.C.dtype, device=self.C.device))
            self.log2p.fill_(math.log2(self.init_p))

    @property
    def p(self) -> Float[Tensor, " n_masks"] | None:
        """The exponents, 2 ** log2p, of shape (n_masks,); None for a layer without masks."""
        return None if self.log2p is None else torch.exp2(self.log2p)

    def mask(self) -> Float[Tensor, "c_out 1 *k"]:
        """The mask of each output channel.

        Returns:
            (out_channels, 1, k_1, ..., k_n), all ones for a layer without masks; in single precision at least.
        """
        mask = self._masks()
        if mask is None:
            return self.weight.new_ones((self.out_channels, 1, *self.kernel_size))
        return mask.repeat_interleave(self.out_channels // len(mask), 0).unsqueeze(1)

    def masked_weight(self) -> Float[Tensor, "..."]:
        """The kernels multiplied by their masks.

        Returns:
            A tensor of the shape and type of ``weight``.

        Raises:
            ValueError: In torch's anomaly detection, if a mask is NaN because a parameter is.

        Source: Lp-convolution (Kwon et al., ICLR 2025).
        """
        if self.training or torch.compiler.is_compiling() or torch.jit.is_tracing():
            return self._multiply()
        sources = tuple(x for x in (self.weight, self.C, self.log2p) if x is not None)
        if torch.is_grad_enabled() and any(source.requires_grad for source in sources):
            self._cached = None  # a step of an optimizer may follow; fused ones leave the versions as they are
            return self._multiply()
        if any(unpack_dual(source).tangent is not None for source in sources):  # forward-mode differentiation
            return self._multiply()
        try:
            states = [(x.data_ptr(), x._version, x.dtype, x.stride()) for x in sources]
        except RuntimeError:  # tensors under a transform of torch.func, or made in inference mode, have none of these
            return self._multiply()
        key = (torch.is_inference_mode_enabled(), *states)
        if self._cached is None or self._cached.key != key:
            self._cached = _Cached(key, tuple(x.detach() for x in sources), self._multiply())
        return self._cached.weight

    def _masks(self) -> Tensor | None:
        if self.C is None or self.log2p is None:
            return None
        mask = lp_mask(self.C, self.log2p, self.kernel_size)
        if not torch.compiler.is_compiling() and torch.is_anomaly_enabled() and mask.isnan().any():
            channel = int(mask.flatten(1).isnan().any(1).nonzero()[0, 0])
            raise ValueError(f"the mask of channel {channel} of {self} is NaN: C or log2p is not finite")
        return mask

    def _multiply(self) -> Tensor:
        mask = self._masks()
        return self.weight if mask is None else self._weight_times(mask)

    def _weight_times(self, factor: Tensor) -> Tensor:
        """The kernels, each multiplied by the factor (k_1, ..., k_n) of its mask, of which there are n_masks."""
        if 1 < len(factor) < self.out_channels:
            factor = factor.repeat_interleave(self.out_channels // len(factor), 0)
        factor = factor.to(self.weight.dtype)
        if not self.transposed:
            return masked_product(self.weight, factor)
        # A transposed kernel is (in, out / groups, ...), its input channels ordered by group.
        by_group = self.weight.unflatten(0, (self.groups, -1))
        return (by_group * factor.unflatten(0, (self.groups if len(factor) > 1 else 1, 1, -1))).flatten(0, 1)

    def shape_summary(self) -> dict[str, Any]:
        """What each mask looks like: radius, elongation, angle, exponent, and how much of the kernel it opens.

        Returns:
            Columns of equal length, as for ``pandas.DataFrame``, with a row for each mask; see ``describe_shapes``.

        Raises:
            ValueError: If the layer has no masks.

        Source: singular values of C, as in the authors' analysis of learned masks.
        """
        if self.C is None or self.log2p is None:
            raise ValueError("the layer has no masks (p=None)")
        with torch.no_grad():
            return describe_shapes(self.C.detach(), self.log2p.detach(), self.kernel_size)

    @classmethod
    def from_conv(
        cls,
        conv: nn.Module,
        p: float | None = 2.0,
        growth: float = 2,
        transfer: Transfer = "copy",
        sigma: float | Sequence[float] | Literal["auto"] = "auto",
        **options: Any,
    ) -> Self:
        """Make the large-kernel Lp layer of a plain convolution, with the same output size.

        Args:
            conv: The layer of torch that this class extends; it is left as it is.
            p: Initial exponent; None for a large kernel without masks.
            growth: Factor by which kernels grow: 2 takes 3 to 7; 1 keeps the size and adds the mask.
            transfer: ``"copy"`` puts the old kernel into the centre of the new one, which the mask then dampens, as the
                authors do; ``"exact"`` divides it by the mask, so that the layer computes what ``conv`` did;
                ``"none"`` draws a new kernel and bias.
            sigma: Initial radius of the masks in taps; ``"auto"`` is half the old kernel size.
            **options: ``learn_p``, ``learn_C``, ``mask_sharing`` and ``log2p_min`` of the layer.

        Returns:
            The layer, in the mode, on the device and of the type of ``conv``, with its hooks.

        Raises:
            TypeError: If ``conv`` is no layer of that kind.
            ValueError: If an argument is out of range, or ``transfer="exact"`` meets a mask that is nearly zero on an
                old tap.

        Source: the large-kernel transform of Kwon et al. (ICLR 2025).
        """
        if not isinstance(conv, cls.plain) or isinstance(conv, LpLayer):
            raise TypeError(f"{cls.__name__}.from_conv takes a {cls.plain.__name__}, found {type(conv).__name__}")
        if transfer not in ("copy", "exact", "none"):
            raise ValueError(f"transfer must be copy, exact or none, found {transfer!r}")
        old: Any = conv
        kernel_size = grown_kernel_size(old.kernel_size, growth)
        new: dict[str, Any] = conv_arguments(
            old,
            kernel_size=kernel_size,
            padding=grown_padding(old.padding, old.kernel_size, kernel_size, old.dilation),
        )
        new |= {"p": p, "sigma": [k / 2 for k in old.kernel_size] if sigma == "auto" else sigma, **options}
        if transfer == "none":
            layer = cls(**new)
        else:
            layer = make_undrawn(cls, new)
            layer._take_over(old, exact=transfer == "exact")
        carry_over(old, layer)
        return layer

    @torch.no_grad()
    def _take_over(self, old: Any, *, exact: bool) -> None:
        """Put a smaller kernel into the centre, divided by the masks if the function is to stay the same."""
        self.weight.zero_()
        centre(self.weight, old.kernel_size).copy_(old.weight)
        if self.bias is not None:
            self.bias.copy_(old.bias)
        if exact:
            self.undo_mask(old.kernel_size)

    @torch.no_grad()
    def undo_mask(self, kernel_size: Sequence[int]) -> None:
        """Divide the kernel by its masks in place, so that its central block acts as it stood before.

        Args:
            kernel_size: The n sizes of the central block; the kernel is zero around it.

        Raises:
            ValueError: If a mask is nearly zero on a tap of the block.

        Source: ours.
        """
        mask = self._masks()
        if mask is None:
            return
        smallest = float(centre(mask, kernel_size).min())
        if smallest < _SMALLEST_DIVISOR:
            raise ValueError(
                f"transfer='exact' divides by the mask, which is {smallest:.2g} on a tap of the old kernel; "
                "choose a larger sigma, or transfer='copy'"
            )
        self.weight.copy_(self._weight_times(1 / mask.clamp(min=_SMALLEST_DIVISOR)))

    def to_conv(self, crop: float = 0.0) -> Any:
        """Make the plain convolution that computes the same, with the mask multiplied into its kernel.

        Args:
            crop: Outer rows and columns of the kernel on which every mask is below this are cut off, with the padding
                that they needed, as far as there is padding to take away; the same number at either end. 0 cuts
                nothing. What is cut is lost, so that the output differs by up to about ``crop`` times the kernel.

        Returns:
            A layer of torch, in the mode, on the device and of the type of this one, with its hooks.

        Raises:
            ValueError: If ``crop`` is not in [0, 1).

        Source: ours; the authors have no such step.
        """
        if not 0 <= crop < 1:
            raise ValueError(f"crop must lie in [0, 1), found {crop}")
        with torch.no_grad():
            for hook in weight_hooks(self):
                hook(self, ())
            mask = self._masks() if crop > 0 else None
            kernel_size = self.kernel_size if mask is None else self._support(mask, crop)
            new = conv_arguments(
                self,
                kernel_size=kernel_size,
                padding=grown_padding(self.padding, self.kernel_size, kernel_size, self.dilation),
            )
            conv: Any = make_undrawn(self.plain, new)
            conv.weight.copy_(centre(self._multiply(), kernel_size))
            if self.bias is not None:
                conv.bias.copy_(self.bias)
        carry_over(self, conv)
        return conv

    def _support(self, mask: Tensor, crop: float) -> tuple[int, ...]:
        """Size of the central block outside of which every mask is below ``crop``; the padding bounds what goes."""
        sizes = []
        for axis, k in enumerate(self.kernel_size):
            others = [1 + i for i in range(len(self.kernel_size)) if i != axis]
            largest = mask.amax(dim=[0, *others])
            cut = 0
            while cut < (k - 1) // 2 and max(largest[cut], largest[k - 1 - cut]) < crop:
                cut += 1
            if not isinstance(self.padding, str):
                cut = min(cut, self.padding[axis] // self.dilation[axis])
            elif self.padding == "valid":
                cut = 0
            sizes.append(k - 2 * cut)
        return tuple(sizes)

    def extra_repr(self) -> str:
        """The arguments of the layer, as torch prints them, and those of its masks."""
        plain = super().extra_repr()
        if self.C is None or self.log2p is None:
            return f"{plain}, p=None"
        frozen = [name for name in ("C", "log2p") if not getattr(self, name).requires_grad]
        sharing = "" if self.mask_sharing == "channel" else f", mask_sharing={self.mask_sharing}"
        return f"{plain}, p={self.init_p:g}{sharing}" + (f", frozen={'+'.join(frozen)}" if frozen else "")

    def train(self, mode: bool = True) -> Self:
        """Switch between training and evaluation, as in torch; forgets the kept kernel."""
        self._cached = None
        return super().train(mode)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cached": None}
