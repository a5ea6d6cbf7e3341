"""Group ONNX models with the real TVM, and print what it did as JSON.

    PYTHON_WITH_TVM benchmarks/tvm_groups.py MODEL.onnx ... > groups.json

Runs by itself in an interpreter that has `apache-tvm` and `onnx` and none of our
packages: the relax ONNX front end, `LegalizeOps`, `AnnotateTIROpPattern` and
`FuseOps`, each timed, libraries already imported. A first model is done once more
beforehand, so that no time holds what TVM loads on first use.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
import warnings
from collections import Counter
from pathlib import Path
from time import perf_counter
from typing import Any

VIEWS = frozenset({"reshape", "squeeze", "expand_dims", "flatten", "unsqueeze"})
"""Operators that TVM later turns into views (`RewriteDataflowReshape`)."""
LAYERS = frozenset(
    {
        "softmax",
        "log_softmax",
        "layer_norm",
        "batch_norm",
        "group_norm",
        "instance_norm",
        "rms_norm",
        "gelu",
        "gelu_tanh",
        "mean",
        "variance",
        "adaptive_avg_pool2d",
    }
)
"""Operators that `LegalizeOps` writes as one function of several loops."""


ON_HOST = frozenset({"shape_of", "shape_to_tensor", "size", "tensor_to_shape"})
"""Operators that ask for sizes; what is made of nothing else is about sizes, too."""


def grouped(path: Path) -> dict[str, Any]:
    """Times of each step, and every kernel that is left in `main`."""
    onnx = importlib.import_module("onnx")
    relax = importlib.import_module("tvm.relax")
    frontend = importlib.import_module("tvm.relax.frontend.onnx")
    seconds: dict[str, float] = {}
    model = bound(onnx.load(str(path)))
    start = perf_counter()
    module = frontend.from_onnx(model, keep_params_in_input=True)
    seconds["import"] = perf_counter() - start
    for name in ("LegalizeOps", "AnnotateTIROpPattern", "FuseOps"):
        start = perf_counter()
        module = getattr(relax.transform, name)()(module)
        seconds[name] = perf_counter() - start
    return {"seconds": seconds, **kernels(relax, module)}


def bound(model: Any) -> Any:
    """A model with the sizes that it states for its open dimensions.

    We plan with these, too; of a tensor of unknown shape TVM's front end makes nothing.
    """
    stated = {entry.key: entry.value for entry in model.metadata_props}
    sizes = json.loads(stated.get("dim_defaults", "{}"))
    values = (*model.graph.input, *model.graph.output, *model.graph.value_info)
    for value in values:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]
    return model


def kernels(relax: Any, module: Any) -> dict[str, Any]:
    """Count the calls of `main` by what they are."""
    main = module["main"]
    inputs = int(main.attrs["num_input"]) if "num_input" in main.attrs else None
    fixed = set() if inputs is None else set(main.params[inputs:])
    sizes: set[Any] = set()
    names = ("views", "weights", "shapes", "layers", "other")
    found: dict[str, Counter[str]] = {name: Counter() for name in names}
    lengths: Counter[int] = Counter()
    for block in main.body.blocks:
        for binding in block.bindings:
            called = operators(relax, module, binding.value)
            used = variables(relax, binding.value)
            is_fixed = bool(used) and all(v in fixed for v in used)
            is_size = not is_fixed and about_sizes(called, used, sizes, fixed)
            (fixed if is_fixed else sizes if is_size else set()).add(binding.var)
            if called:
                where = kind(called, is_fixed=is_fixed, is_size=is_size)
                found[where]["+".join(called)] += 1
                lengths[len(called)] += 1
    return {
        "groups": sum(sum(counts.values()) for counts in found.values()),
        **{name: dict(counts) for name, counts in found.items()},
        "operators_per_group": {str(size): n for size, n in sorted(lengths.items())},
    }


def about_sizes(
    called: list[str], used: list[Any], sizes: set[Any], fixed: set[Any]
) -> bool:
    """Whether a binding asks for sizes, or computes with them and constants alone."""
    if ON_HOST.intersection(called):
        return True
    return any(v in sizes for v in used) and all(v in sizes | fixed for v in used)


def kind(called: list[str], *, is_fixed: bool, is_size: bool = False) -> str:
    """Of weights alone, of sizes, a view, a layer whole, or another kernel."""
    if is_fixed:
        return "weights"
    if is_size:
        return "shapes"
    if VIEWS.issuperset(called):
        return "views"
    return "layers" if LAYERS.intersection(called) else "other"


def operators(relax: Any, module: Any, value: Any) -> list[str]:
    """Operators that a binding runs as one kernel; none for tuples and shapes."""
    if not isinstance(value, relax.Call):
        return []
    if isinstance(value.op, relax.GlobalVar):
        inner = module[value.op].body.blocks
        bindings = (b.value for block in inner for b in block.bindings)
        return [name for b in bindings for name in operators(relax, module, b)]
    if getattr(value.op, "name", "") in ("relax.call_tir", "relax.call_tir_with_grad"):
        return [re.sub(r"\d+$", "", value.args[0].name_hint)]
    name = str(getattr(value.op, "name", ""))
    return [name.removeprefix("relax.")] if name else []


def variables(relax: Any, value: Any) -> list[Any]:
    """Variables that a binding reads."""
    found: list[Any] = []
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, relax.Var):
            found.append(item)
        elif isinstance(item, relax.Call):
            stack.extend(item.args)
        elif isinstance(item, relax.Tuple):
            stack.extend(item.fields)
        elif isinstance(item, relax.TupleGetItem):
            stack.append(item.tuple_value)
    return [v for v in found if not isinstance(v, relax.GlobalVar)]


def main(paths: list[str]) -> None:
    """Print one object with an entry for each model."""
    warnings.simplefilter("ignore")
    told: dict[str, Any] = {"tvm": importlib.import_module("tvm").__version__}
    rows: dict[str, Any] = {}
    for number, name in enumerate(paths):
        path = Path(name)
        try:
            if not number:
                grouped(path)
            rows[path.stem] = grouped(path)
        except Exception as error:  # noqa: BLE001  TVM raises what it likes
            first = (str(error).strip().splitlines() or [""])[0]
            rows[path.stem] = {"error": f"{type(error).__name__}: {first}"[:200]}
    told["models"] = rows
    sys.stdout.write("\n" + json.dumps(told) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
