"""Linear layers computed by oneDNN where the library that torch chooses leaves half of the processor's speed unused."""

from __future__ import annotations

import platform
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def quicken(model: torch.nn.Module) -> None:
    """Let oneDNN compute the float32 linear layers of a model, without gradients, if the processor is `preferred`.

    Torch multiplies float32 matrices by MKL, which uses no AVX-512 on AMD's processors. On a Zen 5, oneDNN is 2.3 times
    as fast; its outputs differ in rounding. The choice depends on the processor alone, so a computation that is resumed
    on the same machine continues with the same bits.
    """
    import torch

    if preferred():
        for layer in model.modules():
            # A class derived from Linear may compute something else.
            if type(layer) is torch.nn.Linear and layer.weight.is_cpu and layer.weight.dtype == torch.float32:
                layer.forward = partial(_outputs, layer)  # type: ignore[method-assign]


def preferred() -> bool:
    import torch

    backends = torch.backends
    return (
        backends.mkl.is_available()
        and backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and backends.cpu.get_cpu_capability() == "AVX512"
        and "AuthenticAMD" in _processor()
    )


def _outputs(layer: torch.nn.Linear, inputs: torch.Tensor) -> torch.Tensor:
    import torch

    outputs: torch.Tensor = torch.ops.mkldnn._linear_pointwise(inputs, layer.weight, layer.bias, "none", [], "")
    return outputs


def _processor() -> str:
    described = Path("/proc/cpuinfo")
    return described.read_text("utf-8", "replace") if described.exists() else platform.processor()
