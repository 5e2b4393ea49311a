"""Compare two stores: `python safety_net/compare.py BEFORE AFTER [--only PART,...] [--all]`.

Prints every case that differs, with its differences; exits with 1 unless all are in allowed.toml. A difference is
allowed if a pattern (a regular expression) is found in its line `part / case / place: before -> after`; with
`tolerance`, only if all numbers differ by at most that much.
"""

import argparse
import json
import re
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SHOWN = 12  # differences of a case, without --all
MISSING = "(missing)"
NUMBER = re.compile(r"-?\d+\.?\d*(?:e-?\d+)?")


def differences(before: Any, after: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Places at which two values differ, with both values there."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in before | after:
            yield from differences(before.get(key, MISSING), after.get(key, MISSING), f"{place} / {key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, pair in enumerate(zip(before, after, strict=True)):
            yield from differences(*pair, f"{place}[{number}]")
    elif repr(before) != repr(after):  # NaN equals NaN
        yield place, before, after


def allowed(line: str, before: Any, after: Any, rules: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The first rule that allows a difference."""
    for rule in rules:
        if re.search(rule["pattern"], line) and ("tolerance" not in rule or _near(before, after, rule["tolerance"])):
            return rule
    return None


def _near(before: Any, after: Any, tolerance: float) -> bool:
    texts = str(before), str(after)
    numbers = [[float(found) for found in NUMBER.findall(text)] for text in texts]
    same = NUMBER.sub("#", texts[0]) == NUMBER.sub("#", texts[1])
    return same and all(abs(a - b) <= tolerance for a, b in zip(*numbers, strict=True))


def main() -> int:
    """Print what differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--only", default="", help="parts, with commas between them; default: those of AFTER")
    parser.add_argument("--all", action="store_true", help=f"show more than {SHOWN} differences of a case")
    options = parser.parse_args()
    rules = tomllib.loads((Path(__file__).parent / "allowed.toml").read_text(encoding="utf-8")).get("allowed", [])
    parts = options.only.split(",") if options.only else sorted(path.stem for path in options.after.glob("*.json"))
    if len({(folder / "machine.txt").read_text() for folder in (options.before, options.after)}) > 1:
        print("NOTE: the stores were made on processors with different instructions; trained bits differ")
    used: Counter[str] = Counter()
    cases: dict[str, list[str]] = defaultdict(list)
    for part in parts:
        stores = [json.loads((folder / f"{part}.json").read_text()) for folder in (options.before, options.after)]
        for place, before, after in differences(*stores):
            line = f"{part}{place}: {str(before)[:160]} -> {str(after)[:160]}"
            if rule := allowed(line, before, after, rules):
                used[rule["reason"]] += 1
            else:
                case = place.split(" / ")[1]
                cases[f"{part} / {case}"].append(line.removeprefix(f"{part} / {case}"))
    for case, lines in cases.items():
        print(f"{case}: {len(lines)} differences")
        print("".join(f"    {line.strip()}\n" for line in lines[: None if options.all else SHOWN]), end="")
    for reason, count in used.items():
        print(f"allowed: {count}, {reason}")
    found = sum(map(len, cases.values()))
    print(f"{found} differences in {len(cases)} cases; compared: {', '.join(parts)}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
