"""The suite in PyTorch, as its users write it; for eager and Inductor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Forms:
    """Functions of the inputs and then the weights, by the cases' names.

    Args:
        torch: the library.
        settings: constants of the suite, by value, as this runs without the suite.
    """

    def __init__(self, torch: Any, settings: Mapping[str, Any]) -> None:
        self.torch = torch
        self.nn = torch.nn.functional
        self.epsilon, self.groups = settings["epsilon"], settings["groups"]
        self.adam = settings["adam"]
        self.step, self.zero = settings["step"], settings["zero"]

    def add_layer_norm(self, x: Any, r: Any, scale: Any, bias: Any) -> Any:
        """The case `add_layer_norm`."""
        return self.nn.layer_norm(x + r, x.shape[-1:], scale, bias, self.epsilon)

    def rms_norm_residual(self, x: Any, r: Any, scale: Any) -> Any:
        """The case `rms_norm_residual`."""
        s = x + r
        return s, self.nn.rms_norm(s, s.shape[-1:], scale, self.epsilon)

    def bias_gelu(self, x: Any, bias: Any) -> Any:
        """The case `bias_gelu`."""
        return self.nn.gelu(x + bias)

    def swiglu(self, gate: Any, up: Any) -> Any:
        """The case `swiglu`."""
        return self.nn.silu(gate) * up

    def masked_softmax(self, x: Any, mask: Any, factor: Any) -> Any:
        """The case `masked_softmax`."""
        del factor
        return self.torch.softmax(x * 0.125 + mask, -1)

    def group_norm_silu(self, x: Any, scale: Any, bias: Any) -> Any:
        """The case `group_norm_silu`."""
        return self.nn.silu(
            self.nn.group_norm(x, self.groups, scale, bias, self.epsilon)
        )

    def bn_relu_add(
        self, x: Any, r: Any, scale: Any, bias: Any, mean: Any, variance: Any
    ) -> Any:
        """The case `bn_relu_add`."""
        n = self.nn.batch_norm(x, mean, variance, scale, bias, False, 0.0, self.epsilon)
        return self.nn.relu(n) + r

    def rotary(self, x: Any, cos: Any, sin: Any, positions: Any) -> Any:
        """The case `rotary`."""
        del positions
        a, b = x.chunk(2, -1)
        return self.torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    def adam_step(self, p: Any, g: Any, m: Any, v: Any, *scalars: Any) -> Any:
        """The case `adam_step`."""
        del scalars
        m = m * self.adam["beta1"] + g * (1 - self.adam["beta1"])
        v = v * self.adam["beta2"] + g * g * (1 - self.adam["beta2"])
        below = (v / self.adam["correct2"]).sqrt() + self.adam["eps"]
        return p - m * (self.adam["lr"] / self.adam["correct1"]) / below, m, v

    def cross_entropy(self, x: Any, labels: Any) -> Any:
        """The case `cross_entropy`."""
        return self.nn.cross_entropy(x, labels)

    def quantise_dequantise(self, x: Any, *scalars: Any) -> Any:
        """The case `quantise_dequantise`."""
        del scalars
        whole = self.torch.clamp(self.torch.round(x / self.step) + self.zero, 0, 255)
        q = whole.to(self.torch.uint8)
        return q, (q.to(self.torch.float32) - self.zero) * self.step

    def transposed_add(self, a: Any, b: Any) -> Any:
        """The case `transposed_add`."""
        return a.t() + b
