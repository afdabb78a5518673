"""Tokens of Relay text: `(kind, text, position)`.

The kind of a mark (`(`, `=>`, …) is the mark itself. The other kinds are `local` (`%x`), `global` (`@main`), `field`
(`.0`, of a tuple), `number`, `word` (dotted names of operators, types and attributes), `string`, and `end`. Comments
can be nested and are skipped.
"""

from __future__ import annotations

import json
import re
from typing import Final, NamedTuple

from tilewright.base.errors import ParseError
from tilewright.relay.parser.errors import Source

_SKIPPED: Final = re.compile(r"(?:\s+|//[^\n]*|/\*(?:(?!/\*).)*?\*/)*", re.S)
_COMMENT_MARK: Final = re.compile(r"/\*|\*/")
_TOKEN: Final = re.compile(
    r"""(?P<local>%[^\W\d]\w*(?:\.\w+)*|%\w+)
    |(?P<global>@(?:[^\W\d]\w*|"(?:[^"\\\n]|\\.)*"))
    |(?P<field>\.\d+)
    |(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?(?:bf16|f(?:16|32|64)?|[iu](?:1|4|8|16|32|64)?|h)?(?!\w))
    |(?P<word>(?:[^\W\d]\w*|`(?:[^`\\\n]|\\.)*`)(?:\.(?:[^\W\d]\w*|`(?:[^`\\\n]|\\.)*`))*)
    |(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<mark>->|=>|==|!=|<=|>=|\#loops|\#\[|[()\[\]{}<>=,;:?+\-*]|/(?!\*))""",
    re.X)

_DECLARED: Final = re.compile(r"%[^\W\d]\w*(?:\.\w+)*\.\d+(?=\s*:)")
"""A name that ends as a field does, where it is declared: `%input.1: Tensor[(2), float32]`."""
_FIELDS: Final = re.compile(r"(?:\.\d+)+$")


class Token(NamedTuple):
    """A word or mark of the text."""

    kind: str
    text: str
    position: int


def tokens_of(source: Source) -> list[Token]:
    """Return the tokens of a text, `end` last. Raises `ParseError` for an invalid character."""
    text, found, at = source.text, [], 0
    declared = set(_DECLARED.findall(text))
    skip, match = _SKIPPED.match, _TOKEN.match
    while True:
        at = skip(text, at).end()  # type: ignore[union-attr]
        if at == len(text):
            break
        if text.startswith("/*", at):
            at = _end_of_comment(source, at)
            continue
        m = match(text, at)
        if m is None:
            raise _no_token(source, at)
        word = m[0]
        kind = m.lastgroup or ""
        if kind == "local" and word not in declared:
            word = _FIELDS.sub("", word)
        found.append(Token(word if kind == "mark" else kind, word, at))
        at += len(word)
    found.append(Token("end", "", len(text)))
    return found


def _end_of_comment(source: Source, at: int) -> int:
    """Return the end of a nested comment. Raises `ParseError` if it is not closed."""
    depth = 0
    for mark in _COMMENT_MARK.finditer(source.text, at):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    raise source.error(at, 2, "this comment is not closed; write */ at its end")


def _no_token(source: Source, at: int) -> ParseError:
    text = source.text
    if text[at] in "\"'":
        return source.error(at, 1, "this string is not closed on its line")
    number = re.compile(r"\d[\w.]*").match(text, at)
    if number:
        return source.error(at, len(number[0]), f"'{number[0]}' is not a number; "
                            "write for example 1, 1i64, 0.5f, 1e-3f64 or 2f16")
    if text[at] in "%@":
        return source.error(at, 1, f"a name is expected after '{text[at]}'")
    return source.error(at, 1, f"'{text[at]}' is not a token of Relay")


def string_value(token: Token) -> str:
    """Return the value of a `string`, or of a quoted global name."""
    text = token.text.lstrip("@")
    if text.startswith("'"):
        text = '"' + text[1:-1].replace('\\\'', "'").replace('"', '\\"') + '"'
    value: str = json.loads(text)
    return value


def plain_word(text: str) -> str:
    """Return a word without its back quotes."""
    return re.sub(r"`((?:[^`\\]|\\.)*)`", lambda m: str(json.loads(f'"{m[1]}"')), text) if "`" in text else text
