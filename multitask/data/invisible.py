"""Characters that nobody sees, such as a zero-width space: a text of nothing else is blank, and messages spell them."""

import re
import unicodedata

INVISIBLE = (
    "\0-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Controls, what Unicode calls default ignorable, and the empty Braille pattern; as in a class of a regular expression.

Private and unassigned characters may have a shape.
"""
BLANK = re.compile(rf"[\s{INVISIBLE}]*")
REMOVED = re.compile(f"[{INVISIBLE}]")


def is_blank(text: str) -> bool:
    """Whether nobody sees anything of a text."""
    return BLANK.fullmatch(text) is not None


def seen(text: str) -> str:
    """A text without the white space around it; empty if it is blank."""
    return "" if is_blank(text) else text.strip()


def spelled(text: str) -> str:
    """A text in quotes, as TOML reads it, with escapes for what nobody sees and for marks that are not composed."""
    composed = unicodedata.is_normalized("NFC", text)

    def spell(c: str) -> str:
        if c.isprintable() and not REMOVED.match(c) and (composed or not unicodedata.combining(c)):
            return f"\\{c}" if c in '"\\' else c
        return f"\\u{ord(c):04x}" if ord(c) < 0x10000 else f"\\U{ord(c):08x}"

    return f'"{"".join(map(spell, text))}"'
