"""The two languages, as data."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from tuner.ir.expr import FUNCTIONS
from tuner.ir.types import DType
from tuner.kernel.render.dialect import Dialect, Storage
from tuner.kernel.streams import STREAMED

if TYPE_CHECKING:
    from collections.abc import Mapping

FLOATS: Final = (DType.F64, DType.F32)
WHOLES: Final = (DType.I64, DType.I32, DType.I8, DType.U8, DType.BOOL)

# Templates in operands {0}, {1}, {2}, the held type {t} and the dtype {d}.
# A form that needs an operand twice is a helper function.
_BOTH: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "add": ("{0} + {1}", "{0} + {1}"),
        "sub": ("{0} - {1}", "{0} - {1}"),
        "mul": ("{0} * {1}", "{0} * {1}"),
        "div": ("{0} / {1}", "divide_{d}({0}, {1})"),
        "neg": ("-{0}", "-{0}"),
        "abs": ("fabs({0})", "abs_{d}({0})"),
        "min": ("min_{d}({0}, {1})", "min_{d}({0}, {1})"),
        "max": ("max_{d}({0}, {1})", "max_{d}({0}, {1})"),
        "where": ("{0} ? {1} : {2}", "{0} ? {1} : {2}"),
        "lt": ("{0} < {1}", "{0} < {1}"),
        "le": ("{0} <= {1}", "{0} <= {1}"),
        "gt": ("{0} > {1}", "{0} > {1}"),
        "ge": ("{0} >= {1}", "{0} >= {1}"),
        "eq": ("{0} == {1}", "{0} == {1}"),
        "and_": ("({0} != 0) & ({1} != 0)", "({0} != 0) & ({1} != 0)"),
        "or_": ("({0} != 0) | ({1} != 0)", "({0} != 0) | ({1} != 0)"),
        "xor_": ("({0} != 0) != ({1} != 0)", "({0} != 0) != ({1} != 0)"),
        "not_": ("{0} == 0", "{0} == 0"),
        "isnan": ("isnan_{d}({0})", "false"),
        "isinf": ("isinf_{d}({0})", "false"),
        "sign": ("sign_{d}({0})", "sign_{d}({0})"),
        "floor": ("floor({0})", "{0}"),
        "ceil": ("ceil({0})", "{0}"),
        "rint": ("rint({0})", "{0}"),
        "pow": ("pow({0}, {1})", "pow_{d}({0}, {1})"),
        "fmod": ("fmod({0}, {1})", "remainder_{d}({0}, {1})"),
        "floor_mod": ("floor_mod_{d}({0}, {1})", "floor_mod_{d}({0}, {1})"),
        "reciprocal": ("1 / {0}", "divide_{d}(1, {0})"),
        "shift_left": ("{0}", "shift_left_{d}({0}, {1})"),
        "shift_right": ("{0}", "shift_right_{d}({0}, {1})"),
        "bit_and": ("{0}", "{0} & {1}"),
        "bit_or": ("{0}", "{0} | {1}"),
        "bit_xor": ("{0}", "{0} ^ {1}"),
        "bit_not": ("{0}", "~{0}"),
    }
)
# Functions of one argument that both languages call by the same name.
_NAMED: Final = (
    *("sqrt", "exp", "log", "sin", "cos", "tan", "asin", "acos", "atan"),
    *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf"),
)
# Functions whose single-precision form ends in f in C.
_C_NAMED: Final = (*_NAMED, "pow", "fmod", "floor", "ceil", "rint", "abs")

_HELPERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "max": "{t} max_{d}({t} a, {t} b) {{ return a > b ? a : b; }}",
        "min": "{t} min_{d}({t} a, {t} b) {{ return a < b ? a : b; }}",
        "abs": "{t} abs_{d}({t} a) {{ return a < 0 ? -a : a; }}",
        "sign": "{t} sign_{d}({t} a) {{ return a > 0 ? 1 : a < 0 ? -1 : a; }}",
        "divide": (
            "{t} divide_{d}({t} a, {t} b)"
            " {{ return b == 0 ? 0 : b == -1 ? -a : a / b; }}"
        ),
        "remainder": (
            "{t} remainder_{d}({t} a, {t} b)"
            " {{ return b == 0 || b == -1 ? 0 : a % b; }}"
        ),
        "floor_mod": (
            "{t} floor_mod_{d}({t} a, {t} b)"
            " {{ {t} r = b == 0 || b == -1 ? 0 : a % b;"
            " return r != 0 && (r < 0) != (b < 0) ? r + b : r; }}"
        ),
        "pow": (
            "{t} pow_{d}({t} a, {t} b) {{ {t} r = 1;"
            " if (b < 0) return a == 1 ? 1 : a == -1 ? ((b & 1) ? -1 : 1) : 0;"
            " for (; b > 0; b = b >> 1) {{ if (b & 1) r = r * a; a = a * a; }}"
            " return r; }}"
        ),
        "shift_left": (
            "{t} shift_left_{d}({t} a, {t} b)"
            " {{ return b < 0 || b >= {bits} ? 0 : a << b; }}"
        ),
        "shift_right": (
            "{t} shift_right_{d}({t} a, {t} b)"
            " {{ return b < 0 || b >= {bits} ? (a < 0 ? -1 : 0) : a >> b; }}"
        ),
    }
)
_FLOAT_HELPERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        # The first operand wins if it is not a number; so does the second, since
        # every comparison with it is false.
        "max": "{t} max_{d}({t} a, {t} b) {{ return a > b || a != a ? a : b; }}",
        "min": "{t} min_{d}({t} a, {t} b) {{ return a < b || a != a ? a : b; }}",
        "sign": "{t} sign_{d}({t} a) {{ return a > 0 ? 1 : a < 0 ? -1 : a; }}",
        "isnan": "bool isnan_{d}({t} a) {{ return a != a; }}",
        "isinf": "bool isinf_{d}({t} a) {{ return fabs(a) == {inf}; }}",
        "floor_mod": (
            "{t} floor_mod_{d}({t} a, {t} b) {{ {t} r = fmod(a, b);"
            " return r != 0 && (r < 0) != (b < 0) ? r + b : r; }}"
        ),
    }
)


def _spelling(*, c_names: bool) -> Mapping[str, Mapping[DType, str]]:
    """All templates; `c_names` for languages without overloads."""
    found: dict[str, Mapping[DType, str]] = {}
    for name in FUNCTIONS:
        real, whole = _BOTH.get(
            name, (f"{name}({{0}})", f"({{t}}){name}((double){{0}})")
        )
        single = real
        if c_names and name in _C_NAMED:
            stem = "fabs" if name == "abs" else name
            single = real.replace(f"{stem}(", f"{stem}f(")
        rows = {DType.F64: real, DType.F32: single}
        found[name] = MappingProxyType(rows | dict.fromkeys(WHOLES, whole))
    return MappingProxyType(found)


def _helpers(
    held: Mapping[DType, str], infinity: Mapping[DType, str], *, c_names: bool
) -> Mapping[str, str]:
    """Helper functions by the name under which templates call them."""
    found: dict[str, str] = {}
    for dtype in (*FLOATS, *WHOLES):
        table = _FLOAT_HELPERS if dtype.is_float else _HELPERS
        for name, text in table.items():
            single = text.replace("fmod(", "fmodf(").replace("fabs(", "fabsf(")
            chosen = single if c_names and dtype is DType.F32 else text
            found[f"{name}_{dtype.value}"] = chosen.format(
                t=held[dtype],
                d=dtype.value,
                inf=infinity.get(dtype, ""),
                bits=8 * dtype.bytes,
            )
    return MappingProxyType(found)


def _vectors(stem: str, widest: int) -> Mapping[int, str]:
    return MappingProxyType({n: f"{stem}{n}" for n in (2, 4) if n <= widest})


def _plain(
    held: Mapping[DType, str], stems: Mapping[DType, str]
) -> dict[DType, Storage]:
    """Storage of the dtypes whose elements are held as they lie."""
    return {
        dtype: Storage(
            type=held[dtype],
            vectors=_vectors(stems[dtype], 16 // dtype.bytes),
        )
        for dtype in (*FLOATS, DType.I64, DType.I32, DType.I8, DType.U8)
    }


_OPENCL_HELD: Final[Mapping[DType, str]] = MappingProxyType(
    {
        DType.F64: "double",
        DType.F32: "float",
        DType.I64: "long",
        DType.I32: "int",
        DType.I8: "char",
        DType.U8: "uchar",
        DType.BOOL: "bool",
    }
)
_OPENCL_INFINITY: Final = MappingProxyType(
    {DType.F64: "(double)INFINITY", DType.F32: "INFINITY"}
)
_OPENCL_HELPERS: Final = MappingProxyType(
    {
        "f32_of_bf16": (
            "float f32_of_bf16(ushort x) { return as_float((uint)x << 16); }"
        ),
        "bf16_of_f32": (
            "ushort bf16_of_f32(float x) { uint b = as_uint(x);"
            " return (ushort)(x != x ? 0x7fc0u"
            " : (b + 0x7fffu + ((b >> 16) & 1u)) >> 16); }"
        ),
    }
)

# The element is said to begin a cache line, as the first of a vector of lanes does: of
# those it alone is addressed, and only aligned vectors can go past the caches.
_STREAM: Final = (
    "void stream_{d}(__global {t}* p, {t} x) {{"
    " typedef {t} line __attribute__((aligned(64)));"
    " __builtin_nontemporal_store(x, (__global line*)p); }}"
)
_OPENCL_STREAMS: Final = MappingProxyType(
    {
        f"stream_{dtype.value}": _STREAM.format(t=_OPENCL_HELD[dtype], d=dtype.value)
        for dtype in STREAMED
    }
)

# The error function as a quotient of polynomials, without a branch: within 6 units in
# the last place, where OpenCL allows 16, and half as slow again as its exponential.
# Source: the coefficients of Eigen's generic_fast_erf_float.
_OPENCL_ERF: Final = (
    "float erf_f32(float a) {"
    " const float x = a > 3.8325f ? 3.8325f : a < -3.8325f ? -3.8325f : a;"
    " const float s = x * x;"
    " float p = fma(s, 2.29050659e-4f, 3.40829101e-3f);"
    " p = fma(p, s, 5.09556951e-2f); p = fma(p, s, 1.85208322e-1f);"
    " p = fma(p, s, 1.12837914f);"
    " float q = fma(s, -1.17916030e-7f, 2.35479665e-5f);"
    " q = fma(q, s, 1.01796253e-3f); q = fma(q, s, 1.40704702e-2f);"
    " q = fma(q, s, 1.10985052e-1f); q = fma(q, s, 4.97469251e-1f);"
    " q = fma(q, s, 1.0f); return x * p / q; }"
)


# Intel's compiler (2026.22) takes a negated float, and all that is computed of it, for
# the same in all lanes: behind a barrier every lane has that of the last one. It also
# finds negations in products with -1 and in sign bits that are turned, and loses masked
# lanes where one of two signs is chosen.
_OPENCL_SIGNS: Final = MappingProxyType(
    {
        "neg_f32": "float neg_f32(float x) { return fma(x, -1.0f, -0.0f); }",
        "neg_f64": "double neg_f64(double x) { return fma(x, -1.0, -0.0); }",
    }
)


def _opencl_spelling() -> Mapping[str, Mapping[DType, str]]:
    found = dict(_spelling(c_names=False))
    found["erf"] = MappingProxyType({**found["erf"], DType.F32: "erf_f32({0})"})
    signs = {DType.F64: "neg_f64({0})", DType.F32: "neg_f32({0})"}
    found["neg"] = MappingProxyType({**found["neg"], **signs})
    return MappingProxyType(found)


OPENCL: Final = Dialect(
    language="opencl",
    prologue="",
    kernel="{attribute}__attribute__((reqd_work_group_size({x}, {y}, 1)))\n"
    "__kernel void {name}({arguments})",
    input="__global const {type}* restrict {name}",
    output="__global {type}* restrict {name}",
    helper="static inline",
    shared="__local",
    shared_pointer="__local",
    wide_rows="",
    thread_x="get_local_id(0)",
    thread_y="get_local_id(1)",
    block="get_group_id(0)",
    barrier="barrier(CLK_LOCAL_MEM_FENCE);",
    ask="__builtin_prefetch({p} + {i});",
    packs_lanes=True,
    unroll="#pragma unroll {n}",
    held=_OPENCL_HELD,
    index=MappingProxyType({32: "int", 64: "long"}),
    storage=MappingProxyType(
        {
            **_plain(_OPENCL_HELD, _OPENCL_HELD),
            DType.F16: Storage(
                type="half",
                vectors=MappingProxyType({}),
                pointer_load="vload_half({i}, {p})",
                pointer_store="vstore_half({x}, {i}, {p})",
            ),
            DType.BF16: Storage(
                type="ushort",
                vectors=_vectors("ushort", 4),
                load="f32_of_bf16({x})",
                store="bf16_of_f32({x})",
            ),
            DType.BOOL: Storage(
                type="uchar",
                vectors=_vectors("uchar", 4),
                load="{x} != 0",
                store="(uchar){x}",
            ),
        }
    ),
    vector_load="vload{n}(0, {p} + {i})",
    vector_store="vstore{n}(({v})({x}), 0, {p} + {i})",
    subgroup=16,
    subgroup_least=16,
    subgroup_guard="defined(cl_intel_required_subgroup_size)"
    " && defined(cl_intel_subgroups)",
    subgroup_attribute="__attribute__((intel_reqd_sub_group_size({n})))",
    shuffle="intel_sub_group_shuffle_xor({x}, {d})",
    spelling=_opencl_spelling(),
    helpers=MappingProxyType(
        {
            **_helpers(_OPENCL_HELD, _OPENCL_INFINITY, c_names=False),
            **_OPENCL_HELPERS,
            **_OPENCL_STREAMS,
            "erf_f32": _OPENCL_ERF,
            **_OPENCL_SIGNS,
        }
    ),
    infinity=_OPENCL_INFINITY,
    not_a_number=MappingProxyType({DType.F64: "(double)NAN", DType.F32: "NAN"}),
    multiply=MappingProxyType({}),
    pair="",
    word="",
    wide_word="",
)

_CUDA_HELD: Final[Mapping[DType, str]] = MappingProxyType(
    {
        DType.F64: "double",
        DType.F32: "float",
        DType.I64: "long long",
        DType.I32: "int",
        DType.I8: "signed char",
        DType.U8: "unsigned char",
        DType.BOOL: "bool",
    }
)
_CUDA_STEMS: Final[Mapping[DType, str]] = MappingProxyType(
    {
        DType.F64: "double",
        DType.F32: "float",
        DType.I64: "longlong",
        DType.I32: "int",
        DType.I8: "char",
        DType.U8: "uchar",
    }
)
_CUDA_INFINITY: Final = MappingProxyType(
    {
        DType.F64: "__longlong_as_double(0x7ff0000000000000ll)",
        DType.F32: "__int_as_float(0x7f800000)",
    }
)


def _product(kind: str) -> str:
    """The product of two fragments; see `tuner.kernel.fragments`."""
    sums, left, right = ("%0,%1,%2,%3", "%4,%5,%6,%7", "%8,%9")
    made = ", ".join(f'"+f"(c[{i}])' for i in range(4))
    given = [f'"r"(a[{i}])' for i in range(4)] + [f'"r"(b[{i}])' for i in range(2)]
    return (
        f"void mma_{kind}(float* c, const unsigned* a, const unsigned* b)"
        f' {{ asm("mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32'
        f' {{{sums}}}, {{{left}}}, {{{right}}}, {{{sums}}};"'
        f" : {made} : {', '.join(given)}); }}"
    )


_CUDA_HELPERS: Final = MappingProxyType(
    {
        "f32_of_bf16": (
            "float f32_of_bf16(unsigned short x)"
            " { return __uint_as_float((unsigned)x << 16); }"
        ),
        "bf16_of_f32": (
            "unsigned short bf16_of_f32(float x)"
            " { unsigned b = __float_as_uint(x);"
            " return (unsigned short)(x != x ? 0x7fc0u"
            " : (b + 0x7fffu + ((b >> 16) & 1u)) >> 16); }"
        ),
        "f32_of_f16": (
            "float f32_of_f16(unsigned short x)"
            ' { float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x)); return y; }'
        ),
        "f16_of_f32": (
            "unsigned short f16_of_f32(float x)"
            ' { unsigned short y; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));'
            " return y; }"
        ),
        "mma_f16": _product("f16"),
        "mma_bf16": _product("bf16"),
    }
)

CUDA: Final = Dialect(
    language="cuda",
    prologue="",
    kernel='extern "C" __global__ void __launch_bounds__({threads})\n'
    "{name}({arguments})",
    input="const {type}* __restrict__ {name}",
    output="{type}* __restrict__ {name}",
    helper="static __device__ __forceinline__",
    shared="__shared__",
    shared_pointer="",
    wide_rows="__align__(16) ",
    thread_x="threadIdx.x",
    thread_y="threadIdx.y",
    block="blockIdx.x",
    barrier="__syncthreads();",
    ask="",
    packs_lanes=False,
    unroll="#pragma unroll {n}",
    held=_CUDA_HELD,
    index=MappingProxyType({32: "int", 64: "long long"}),
    storage=MappingProxyType(
        {
            **_plain(_CUDA_HELD, _CUDA_STEMS),
            DType.F16: Storage(
                type="unsigned short",
                vectors=_vectors("ushort", 4),
                load="f32_of_f16({x})",
                store="f16_of_f32({x})",
            ),
            DType.BF16: Storage(
                type="unsigned short",
                vectors=_vectors("ushort", 4),
                load="f32_of_bf16({x})",
                store="bf16_of_f32({x})",
            ),
            DType.BOOL: Storage(
                type="unsigned char",
                vectors=_vectors("uchar", 4),
                load="{x} != 0",
                store="(unsigned char){x}",
            ),
        }
    ),
    vector_load="*(const {v}*)({p} + {i})",
    vector_store="*({v}*)({p} + {i}) = make_{v}({x})",
    subgroup=32,
    subgroup_least=2,
    subgroup_guard="",
    subgroup_attribute="",
    shuffle="__shfl_xor_sync(0xffffffffu, {x}, {d})",
    spelling=_spelling(c_names=True),
    helpers=MappingProxyType(
        {**_helpers(_CUDA_HELD, _CUDA_INFINITY, c_names=True), **_CUDA_HELPERS}
    ),
    infinity=_CUDA_INFINITY,
    not_a_number=MappingProxyType(
        {
            DType.F64: "__longlong_as_double(0x7ff8000000000000ll)",
            DType.F32: "__int_as_float(0x7fc00000)",
        }
    ),
    multiply=MappingProxyType(
        {
            DType.F16: "mma_f16({c}, {a}, {b});",
            DType.BF16: "mma_bf16({c}, {a}, {b});",
        }
    ),
    pair="*(const unsigned*)({p} + {i})",
    word="unsigned",
    wide_word="uint4",
)
