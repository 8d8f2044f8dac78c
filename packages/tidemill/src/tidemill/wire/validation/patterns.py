"""Converts the models' regular expressions, which are in Java's syntax, to Python's.

Java's ``\\p{...}`` classes, ``\\z`` and surrogate ranges are rewritten. Unicode classes become Python's ``\\w``,
``\\d`` and explicit ranges: slightly wider than Java's, never narrower, so that no legal value is refused.
"""

import re
from functools import lru_cache

import structlog

_log = structlog.get_logger("tidemill.wire")

_PUNCTUATION = (
    r"!-#%-*,-/:;?@\[-\]_{}\u00a1\u00a7\u00ab\u00b6\u00b7\u00bb\u00bf\u2010-\u2027\u2030-\u205e"
    r"\u3001-\u3003\u3008-\u3011\uff01-\uff0f"
)
_SYMBOLS = (
    r"$+<->\^`|~\u00a2-\u00a9\u00ac\u00ae-\u00b1\u00b4\u00b8\u00d7\u00f7\u2044\u2052\u20a0-\u2bff"
    r"\u3000-\u303f\ufe00-\uffff\U0001f000-\U0001faff"
)
_MARKS = (
    r"\w\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u0900-\u0dff\u1ab0-\u1aff"
    r"\u1dc0-\u1dff\u20d0-\u20ff\ufe00-\ufe0f\ufe20-\ufe2f"
)
_CLASSES = {
    "L": r"\w",
    "N": r"\d\u00b2\u00b3\u00b9\u00bc-\u00be\u2070-\u218f\u2460-\u24ff",
    "M": _MARKS,
    "Z": r"\u0020\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000",
    "Zs": r"\u0020\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000",
    "P": _PUNCTUATION,
    "S": _SYMBOLS,
    "Alnum": "a-zA-Z0-9",
    "Alpha": "a-zA-Z",
    "ASCII": r"\x00-\x7f",
    "Print": r"\x20-\x7e",
}
_PROPERTY = re.compile(r"\\p\{(\w+)\}")
_SURROGATES = r"\uD800\uDC00-\uDBFF\uDFFF"


@lru_cache(maxsize=4096)
def compile_pattern(pattern: str) -> re.Pattern[str] | None:
    """Compile a model's pattern for ``fullmatch``.

    Returns:
        The pattern, or None when it has a construct that Python cannot express; that is logged once.
    """
    try:
        return re.compile(_translate(pattern))
    except (re.error, KeyError) as error:
        _log.warning("wire.pattern_skipped", pattern=pattern, reason=str(error))
        return None


def _translate(pattern: str) -> str:
    text = pattern.replace(_SURROGATES, r"\U00010000-\U0010FFFF").replace(r"\z", r"\Z").replace(r"[\w-_]", r"[\w\-_]")
    text = re.sub(r"\$\{\d+,\d+\}", "$", text)  # a length after the end anchor; the model repeats it as max
    parts: list[str] = []
    position = 0
    for found in _PROPERTY.finditer(text):
        parts.append(text[position : found.start()])
        content = _CLASSES[found[1]]
        parts.append(content if _inside_class(text, found.start()) else f"[{content}]")
        position = found.end()
    return "".join([*parts, text[position:]])


def _inside_class(text: str, end: int) -> bool:
    inside = False
    position = 0
    while position < end:
        if text[position] == "\\":
            position += 1
        elif text[position] == "[":
            inside = True
        elif text[position] == "]":
            inside = False
        position += 1
    return inside
