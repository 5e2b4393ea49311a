"""Random changes of real inputs: bytes, parts of JSON, and arguments. Equal draws give equal changes."""

import io
import json
import random
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import numpy as np

AWKWARD = (
    *(b"", b"\0", b"\xff", b"\xef\xbb\xbf", b"\r", b"\n", b"\r\n", b'"', b'""', b"'", b",", b"\t", b";", b"|", b"\\"),
    *(b"{", b"}", b"[", b"]", b"[" * 3000, b'{"a":' * 3000, b"9" * 5000, b"1e999", b"-1", b"0", b"NaN", b"-inf"),
    *(b"null", b"true", b'"\\ud800"', b"\\u0000", b"../../x", b"/dev/null", "\u202e\x1b[31m".encode(), b"x" * 70_000),
    *("é".encode("latin-1"), "ﷺ🏳️‍🌈".encode(), b"=1+1", b"hf:a/b", b"1979-05-27", b"0x1f", b'"""', b"#"),
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2, 3, 10**9, 2**63, -(2**63), 10**400, 0.5, 1e308, float("nan"), float("inf")),
    *("", "a", "../../x", "/etc/passwd", "\0", "\ud800", "x" * 5000, "1", "none", [], {}, [1], ["a"], [[]], {"a": 1}),
)

ARRAYS = tuple(
    np.array(value)
    for value in (1, -1, 2**60, [], [[1]], [1.5, float("nan")], "a", ["a", "\ud800"], [True], [1j], b"\0")
)


def mutated(content: bytes, draw: random.Random) -> bytes:
    """One to four changes of bytes."""
    found = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 4))):
        begin = draw.randrange(len(found) + 1)
        end = min(len(found), begin + draw.choice((0, 1, 1, 4, 64, 1000)))
        match draw.randrange(6):
            case 0 if found:
                found[begin % len(found)] ^= 1 << draw.randrange(8)
            case 1:
                del found[begin:end]
            case 2:
                found[begin:end] = draw.choice(AWKWARD)
            case 3:
                found[begin:begin] = found[begin:end] * draw.choice((1, 2, 20))
            case 4:
                del found[begin:]
            case _:
                found[begin:end] = draw.randbytes(draw.choice((1, 4, 16)))
    return bytes(found)


def mutated_json(value: Any, draw: random.Random) -> Any:
    """The value with one part replaced, removed or renamed."""
    if isinstance(value, dict) and value and draw.random() < 0.9:
        key = draw.choice(list(value))
        rest = {name: part for name, part in value.items() if name != key}
        match draw.randrange(8):
            case 0:
                return rest
            case 1:
                return {**rest, draw.choice(("", "x", key.upper(), "../x")): value[key]}
            case _:
                return {**value, key: mutated_json(value[key], draw)}
    if isinstance(value, list) and value and draw.random() < 0.8:
        place = draw.randrange(len(value))
        return [*value[:place], mutated_json(value[place], draw), *value[place + 1 :]]
    return draw.choice(VALUES)


def mutated_file(content: bytes, draw: random.Random) -> bytes:
    """A changed file: JSON half of the times by its parts, anything else by its bytes."""
    if content[:1] in (b"{", b"[") and draw.random() < 0.5:
        try:
            return json.dumps(mutated_json(json.loads(content), draw)).encode("utf-8", "surrogatepass")
        except ValueError:
            pass
    return mutated(content, draw)


def mutated_lines(content: bytes, draw: random.Random) -> bytes:
    """Lines of JSON, one of them changed by its parts."""
    lines = content.splitlines(keepends=True)
    place = draw.randrange(len(lines))
    lines[place] = json.dumps(mutated_json(json.loads(lines[place]), draw)).encode() + b"\n"
    return b"".join(lines)


def mutated_record(name: str, content: bytes, draw: random.Random) -> bytes:
    """A changed record in the file of this name, with the hash that fits it (see `multitask.runs.records`)."""
    record = mutated_json(json.loads(content)["record"], draw)
    digest = sha256(json.dumps([name, record], sort_keys=True).encode()).hexdigest()
    return json.dumps({"sha256": digest, "record": record}).encode()


def mutated_tensors(content: bytes, draw: random.Random) -> bytes:
    """A safetensors file with a changed header: after its length in 8 bytes, it is JSON."""
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.dumps(mutated_json(json.loads(content[8:end]), draw)).encode()
    return len(header).to_bytes(8, "little") + header + content[end:]


def mutated_arrays(content: bytes, draw: random.Random) -> bytes:
    """A whole .npz file with another array in the place of one of its arrays."""
    arrays = dict(np.load(io.BytesIO(content)))
    name = draw.choice(sorted(arrays))
    arrays[draw.choice((name, name, name, "x"))] = draw.choice(ARRAYS)
    written = io.BytesIO()
    np.savez(written, **arrays)
    return written.getvalue()


def mutated_arguments(arguments: Sequence[str], draw: random.Random) -> list[str]:
    """A changed command line."""
    found = list(arguments)
    for _ in range(draw.choice((1, 1, 2, 3))):
        place = draw.randrange(len(found) + 1)
        match draw.randrange(6):
            case 0:
                del found[place : place + 1]
            case 1:
                found[place : place + 1] = [draw.choice(AWKWARD).decode("utf-8", "surrogateescape")]
            case 2:
                found.insert(place, draw.choice(found) if found else "")
            case 3:
                found[place : place + 1] = [str(draw.choice(VALUES))]
            case 4 if found:
                given = found[place % len(found)].encode("utf-8", "surrogatepass")
                found[place % len(found)] = mutated(given, draw).decode("utf-8", "surrogateescape")
            case _:
                draw.shuffle(found)
    return found
