"""Kernel source in colours: words with a class, which the style sheet colours."""

from __future__ import annotations

import re
from typing import Final

from markupsafe import Markup, escape

_KEYWORDS: Final = [
    "if",
    "else",
    "for",
    "while",
    "do",
    "return",
    "break",
    "continue",
    "switch",
    "case",
    "default",
    "const",
    "restrict",
    "__restrict__",
    "extern",
    "static",
    "inline",
    "struct",
    "typedef",
    "volatile",
    "__kernel",
    "kernel",
    "__global",
    "__local",
    "__private",
    "__constant",
    "global",
    "local",
    "__global__",
    "__device__",
    "__shared__",
    "__launch_bounds__",
    "__attribute__",
    "__forceinline__",
]
_TYPES: Final = [
    "void",
    "bool",
    "char",
    "uchar",
    "short",
    "ushort",
    "int",
    "uint",
    "long",
    "ulong",
    "float",
    "double",
    "half",
    "size_t",
    "unsigned",
    "signed",
    "float2",
    "float4",
    "float8",
    "float16",
    "half2",
    "half4",
    "half8",
    "int2",
    "int4",
    "uint2",
    "uint4",
    "__half",
    "__half2",
    "__nv_bfloat16",
    "int8_t",
    "uint8_t",
    "int16_t",
    "uint16_t",
    "int32_t",
    "uint32_t",
    "int64_t",
    "uint64_t",
]

_TOKEN: Final = re.compile(
    r"(?P<comment>//[^\n]*|/\*.*?\*/)"
    r'|(?P<string>"(?:\\.|[^"\\\n])*")'
    r"|(?P<macro>^[ \t]*\#[^\n]*)"
    r"|(?P<number>\b(?:0[xX][0-9a-fA-F]+|\d+\.?\d*(?:[eE][+-]?\d+)?)[uUlLfFhH]*\b)"
    r"|(?P<word>[A-Za-z_]\w*)(?P<call>(?=\s*\())?",
    re.DOTALL | re.MULTILINE,
)


def highlight(text: str) -> tuple[Markup, ...]:
    """Lines of a C-like source as markup; everything in it is escaped."""
    pieces: list[Markup] = []
    at = 0
    for found in _TOKEN.finditer(text):
        pieces.append(escape(text[at : found.start()]))
        pieces.append(_coloured(found))
        at = found.end()
    pieces.append(escape(text[at:]))
    return tuple(Markup(line) for line in Markup("").join(pieces).split("\n"))  # noqa: S704 - every piece was escaped


def _coloured(found: re.Match[str]) -> Markup:
    text = found.group()
    kind = _kind(found)
    if not kind:
        return escape(text)
    tag = Markup('<span class="c-{}">{}</span>')
    # A comment over many lines is closed and opened again, so that lines stay whole.
    return Markup("\n").join(tag.format(kind, line) for line in text.split("\n"))


def _kind(found: re.Match[str]) -> str:
    name = found.lastgroup or ""
    if name not in {"word", "call"}:
        return name
    word = found.group("word")
    if word in _KEYWORDS:
        return "keyword"
    if word in _TYPES:
        return "type"
    return "call" if found.group("call") is not None else ""
