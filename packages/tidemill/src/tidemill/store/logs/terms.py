"""CloudWatch's filter patterns for plain text: terms that must occur, may occur, or must not.

The forms for JSON, for space-delimited fields and for regular expressions are refused; they never count as plain text.
"""

import re
from dataclasses import dataclass

_TERM = re.compile(r'\s*([?-]?)(?:"((?:[^"\\]|\\.)*)"|(\S+))')
_OTHER_FORMS = {"{": "JSON", "[": "space-delimited", "%": "regular expression"}


@dataclass(frozen=True, slots=True)
class LogTerms:
    """A parsed pattern. Terms match anywhere in the message, and case matters.

    Attributes:
        required: All of them must occur.
        optional: At least one of them must occur, if there are any.
        excluded: None of them may occur.
    """

    required: tuple[bytes, ...] = ()
    optional: tuple[bytes, ...] = ()
    excluded: tuple[bytes, ...] = ()

    @classmethod
    def parse(cls, pattern: str) -> "LogTerms":
        """Read a pattern such as ``ERROR "out of memory" -retry`` or ``?ERROR ?WARN``; an empty one matches all.

        Raises:
            ValueError: The pattern has another form, an unquoted special character, or mixes ``?`` with other terms.
        """
        found: dict[str, list[bytes]] = {"": [], "?": [], "-": []}
        place, end = 0, len(pattern.rstrip())
        while place < end:
            match = _TERM.match(pattern, place)
            assert match is not None, "whatever is no space is a term"
            sign, phrase, word = match.groups()
            term = re.sub(r"\\(.)", r"\1", phrase) if phrase is not None else _checked_word(word, pattern)
            if term:
                found[sign].append(term.encode("utf-8", "surrogatepass"))
            place = match.end()
        if found["?"] and (found[""] or found["-"]):
            raise ValueError(
                f"{pattern!r} mixes ?terms with others; CloudWatch would leave the ?terms out. Use either ?terms alone,"
                " or required and -excluded terms"
            )
        return cls(tuple(found[""]), tuple(found["?"]), tuple(found["-"]))

    def match(self, message: bytes) -> bool:
        """Return whether a message matches the pattern."""
        return (
            all(term in message for term in self.required)
            and (not self.optional or any(term in message for term in self.optional))
            and not any(term in message for term in self.excluded)
        )


def _checked_word(word: str, pattern: str) -> str:
    form = _OTHER_FORMS.get(word[0])
    if form is not None:
        raise ValueError(
            f'{pattern!r} is a {form} pattern, which is not offered; use terms: ERROR, "a phrase", ?any, -not'
        )
    strange = next((character for character in word if not (character.isalnum() or character == "_")), None)
    if strange is not None:
        raise ValueError(
            f"{strange!r} in the term {word!r} is not allowed; put terms with other characters than letters, digits and"
            " '_' into double quotation marks"
        )
    return word
