"""Runs CUDA texts on a processor, thread by thread, where there is no GPU.

The text is compiled as C++ as it stands; only the helpers that are inline assembly
are replaced, by what the PTX manual says of them. Every thread of a block is a fibre:
they take turns from barrier to barrier, and all must meet at the same one.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tuner.ir.graph import Graph
    from tuner.ir.types import Array
    from tuner.plan import Source

GUARD_BYTES: Final = 64
POISON: Final = 0xA5

PRELUDE: Final = r"""
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>
#include <vector>
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(n)
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))
#define __syncthreads() meet(__LINE__)
struct index3 { unsigned x, y, z; };
struct uint4 { unsigned x, y, z, w; };
static index3 threadIdx, blockIdx, blockDim;
static float __uint_as_float(unsigned x) { float y; memcpy(&y, &x, 4); return y; }
static unsigned __float_as_uint(float x) { unsigned y; memcpy(&y, &x, 4); return y; }
static float __int_as_float(int x) { return __uint_as_float((unsigned)x); }

struct fibre { ucontext_t context; std::vector<char> stack; bool done; int at; };
static std::vector<fibre> fibres;
static ucontext_t scheduler;
static unsigned running;
static void meet(int line) {
    fibres[running].at = line;
    swapcontext(&fibres[running].context, &scheduler);
}

static float half(unsigned short x) { _Float16 y; memcpy(&y, &x, 2); return (float)y; }
static float brain(unsigned short x) { return __uint_as_float((unsigned)x << 16); }

/* PTX ISA, "Matrix Fragments for mma.m16n8k16": the element number i of a thread. */
static unsigned words_a[32][32][4], words_b[32][32][2];
static void product(float* c, const unsigned* a, const unsigned* b,
                    float (*value)(unsigned short)) {
    float A[16][16], B[16][8];
    const int warp = running / 32, lane = running % 32;
    memcpy(words_a[warp][lane], a, 16);
    memcpy(words_b[warp][lane], b, 8);
    meet(-1);
    for (int other = 0; other < 32; other++) {
        const int groupID = other >> 2, threadID_in_group = other % 4;
        for (int i = 0; i < 8; i++) {
            const int row = i < 2 || (i >= 4 && i < 6) ? groupID : groupID + 8;
            const int col = threadID_in_group * 2 + (i & 1) + (i >= 4 ? 8 : 0);
            const unsigned word = words_a[warp][other][i / 2];
            A[row][col] = value((unsigned short)(word >> (i % 2 * 16)));
        }
        for (int i = 0; i < 4; i++) {
            const int row = threadID_in_group * 2 + (i & 1) + (i >= 2 ? 8 : 0);
            const unsigned word = words_b[warp][other][i / 2];
            B[row][groupID] = value((unsigned short)(word >> (i % 2 * 16)));
        }
    }
    meet(-2);
    for (int i = 0; i < 4; i++) {
        const int row = (lane >> 2) + (i < 2 ? 0 : 8);
        const int col = lane % 4 * 2 + (i & 1);
        for (int k = 0; k < 16; k++) c[i] += A[row][k] * B[k][col];
    }
}

static void (*entry)(void**);
static void** arguments;
static void start() {
    entry(arguments);
    fibres[running].done = true;
    swapcontext(&fibres[running].context, &scheduler);
}

static int turn(unsigned threads) {
    int left = 0, at = 0;
    for (running = 0; running < threads; running++) {
        fibre& own = fibres[running];
        if (own.done) continue;
        threadIdx = {running % blockDim.x, running / blockDim.x, 0};
        swapcontext(&scheduler, &own.context);
        if (own.done) continue;
        if (left++ && own.at != at) return -1;
        at = own.at;
    }
    return left;
}

static int launch(void (*kernel)(void**), void** given, unsigned blocks, unsigned x,
                  unsigned y) {
    entry = kernel;
    arguments = given;
    blockDim = {x, y, 1};
    for (unsigned block = 0; block < blocks; block++) {
        blockIdx = {block, 0, 0};
        fibres.resize(x * y);
        for (fibre& own : fibres) {
            own.stack.resize(1 << 16);
            own.done = false;
            getcontext(&own.context);
            own.context.uc_stack.ss_sp = own.stack.data();
            own.context.uc_stack.ss_size = own.stack.size();
            own.context.uc_link = nullptr;
            makecontext(&own.context, start, 0);
        }
        int left = (int)(x * y), before;
        do {
            before = left;
            left = turn(x * y);
            if (left < 0 || (left && left != before)) return 1;
        } while (left);
    }
    return 0;
}
"""

_REPLACED: Final = {
    "f32_of_f16": "static float f32_of_f16(unsigned short x) { return half(x); }",
    "f16_of_f32": (
        "static unsigned short f16_of_f32(float x) { _Float16 y = (_Float16)x;"
        " unsigned short z; memcpy(&z, &y, 2); return z; }"
    ),
    "mma_f16": (
        "static void mma_f16(float* c, const unsigned* a, const unsigned* b)"
        " { product(c, a, b, half); }"
    ),
    "mma_bf16": (
        "static void mma_bf16(float* c, const unsigned* a, const unsigned* b)"
        " { product(c, a, b, brain); }"
    ),
}


def build(sources: Sequence[Source], folder: Path) -> ctypes.CDLL:
    """One library with a function `run0`, `run1`, ... for each kernel."""
    parts = [PRELUDE]
    for number, source in enumerate(sources):
        pointers = ", ".join(
            f"({kind})given[{i}]" for i, kind in enumerate(_pointer_types(source.text))
        )
        parts.append(
            f"namespace kernel{number} {{\n{_replaced(source.text)}\n"
            f"static void call(void** given) {{ {source.entry}({pointers}); }}\n}}\n"
            f'extern "C" int run{number}(void** given) {{ return launch('
            f"kernel{number}::call, given, {source.grid[0]}u, {source.block[0]}u,"
            f" {source.block[1]}u); }}\n"
        )
    text, library = folder / "kernels.cpp", folder / "kernels.so"
    text.write_text("".join(parts))
    words = ["g++", "-std=c++17", "-O1", "-fPIC", "-shared", "-w"]
    subprocess.run([*words, "-o", library, text], check=True)
    return ctypes.CDLL(str(library))


def _replaced(text: str) -> str:
    lines = []
    for line in text.replace('extern "C" ', "static ").splitlines():
        found = re.match(r"static __device__ __forceinline__ .*?(\w+)\(", line)
        name = found.group(1) if found else ""
        assert "asm(" not in line or name in _REPLACED, line
        lines.append(_REPLACED[name] if "asm(" in line else line)
    return "\n".join(lines)


def _pointer_types(text: str) -> list[str]:
    """Types of the kernel's arguments."""
    (arguments,) = re.findall(r"^fused\((.*)\) \{$", text, flags=re.MULTILINE)
    return [part.rpartition("__restrict__")[0].strip() for part in arguments.split(",")]


def run(
    library: ctypes.CDLL,
    number: int,
    source: Source,
    graph: Graph,
    feeds: Mapping[str, Array],
) -> dict[str, Array]:
    """Outputs of a kernel over poisoned memory; nothing behind them was written."""
    memories: dict[str, Any] = {}
    for argument in source.arguments:
        size = graph.types[argument.tensor].bytes
        memory = _aligned(size + GUARD_BYTES)
        memory[:] = POISON
        if not argument.is_output:
            content = np.ascontiguousarray(feeds[argument.tensor])
            memory[:size] = content.view(np.uint8).reshape(-1)
        memories[argument.tensor] = memory
    pointers = (ctypes.c_void_p * len(memories))(
        *(memories[a.tensor].ctypes.data for a in source.arguments)
    )
    assert getattr(library, f"run{number}")(pointers) == 0, "threads part at a barrier"
    found = {}
    for name in graph.outputs:
        kind = graph.types[name]
        assert (memories[name][kind.bytes :] == POISON).all()
        content = memories[name][: kind.bytes].view(kind.dtype.numpy)
        found[name] = content.reshape(kind.static_shape)
    return found


def _aligned(size: int) -> Any:
    room = np.empty(size + 256, np.uint8)
    return room[-room.ctypes.data % 256 :][:size]
