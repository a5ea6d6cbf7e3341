"""The suite in JAX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Forms:
    """Functions of the inputs and then the weights, by the cases' names.

    Args:
        jax: the library.
        settings: constants of the suite, by value, as this runs without the suite.
    """

    def __init__(self, jax: Any, settings: Mapping[str, Any]) -> None:
        self.jax = jax
        self.np = jax.numpy
        self.epsilon, self.groups = settings["epsilon"], settings["groups"]
        self.adam = settings["adam"]
        self.step, self.zero = settings["step"], settings["zero"]

    def add_layer_norm(self, x: Any, r: Any, scale: Any, bias: Any) -> Any:
        """The case `add_layer_norm`."""
        s = x + r
        mean = s.mean(-1, keepdims=True)
        variance = self.np.square(s - mean).mean(-1, keepdims=True)
        return (s - mean) * self.jax.lax.rsqrt(variance + self.epsilon) * scale + bias

    def rms_norm_residual(self, x: Any, r: Any, scale: Any) -> Any:
        """The case `rms_norm_residual`."""
        s = x + r
        square = self.np.square(s).mean(-1, keepdims=True)
        return s, s * self.jax.lax.rsqrt(square + self.epsilon) * scale

    def bias_gelu(self, x: Any, bias: Any) -> Any:
        """The case `bias_gelu`."""
        return self.jax.nn.gelu(x + bias, approximate=False)

    def swiglu(self, gate: Any, up: Any) -> Any:
        """The case `swiglu`."""
        return self.jax.nn.silu(gate) * up

    def masked_softmax(self, x: Any, mask: Any, factor: Any) -> Any:
        """The case `masked_softmax`."""
        return self.jax.nn.softmax(x * factor + mask, -1)

    def group_norm_silu(self, x: Any, scale: Any, bias: Any) -> Any:
        """The case `group_norm_silu`."""
        rows = x.reshape(x.shape[0], self.groups, -1)
        mean = rows.mean(-1, keepdims=True)
        variance = self.np.square(rows - mean).mean(-1, keepdims=True)
        n = ((rows - mean) * self.jax.lax.rsqrt(variance + self.epsilon)).reshape(
            x.shape
        )
        return self.jax.nn.silu(n * scale[:, None, None] + bias[:, None, None])

    def bn_relu_add(
        self, x: Any, r: Any, scale: Any, bias: Any, mean: Any, variance: Any
    ) -> Any:
        """The case `bn_relu_add`."""
        factor = scale * self.jax.lax.rsqrt(variance + self.epsilon)
        shift = bias - mean * factor
        return self.jax.nn.relu(x * factor[:, None, None] + shift[:, None, None]) + r

    def rotary(self, x: Any, cos: Any, sin: Any, positions: Any) -> Any:
        """The case `rotary`."""
        del positions
        a, b = self.np.split(x, 2, -1)
        return self.np.concatenate((a * cos - b * sin, b * cos + a * sin), -1)

    def adam_step(self, p: Any, g: Any, m: Any, v: Any, *scalars: Any) -> Any:
        """The case `adam_step`."""
        del scalars
        m = m * self.adam["beta1"] + g * (1 - self.adam["beta1"])
        v = v * self.adam["beta2"] + g * g * (1 - self.adam["beta2"])
        below = self.np.sqrt(v / self.adam["correct2"]) + self.adam["eps"]
        return p - m * (self.adam["lr"] / self.adam["correct1"]) / below, m, v

    def cross_entropy(self, x: Any, labels: Any) -> Any:
        """The case `cross_entropy`."""
        chosen = self.np.take_along_axis(x, labels[:, None], 1)[:, 0]
        return (self.jax.nn.logsumexp(x, 1) - chosen).mean()

    def quantise_dequantise(self, x: Any, *scalars: Any) -> Any:
        """The case `quantise_dequantise`."""
        del scalars
        whole = self.np.clip(self.np.round(x / self.step) + self.zero, 0, 255)
        q = whole.astype(self.np.uint8)
        return q, (q.astype(self.np.float32) - self.zero) * self.step

    def transposed_add(self, a: Any, b: Any) -> Any:
        """The case `transposed_add`."""
        return a.T + b
