"""Shared code of the scripts `words`, `names` and `circles`: the sources of the libraries, without their tests."""
import re
from pathlib import Path

ROOTS = ["artillery-core/src", "artillery-ddata/proto/src", "artillery-ddata/src"]


def is_test(path):
    return path.name == "tests.rs" or "tests" in path.parts or path.name == "fake.rs"


def sources(root):
    """The files of a crate, tests left out, in a fixed order."""
    return sorted(path for path in Path(root).rglob("*.rs") if not is_test(path))


def code(path):
    """A file without comments, strings and its inline modules of tests."""
    text = re.sub(r'"(?:\\.|[^"\\])*"', '""', path.read_text())
    text = re.sub(r"//[^\n]*", "", text)
    return without_tests(text)


def without_tests(text):
    kept, position = [], 0
    for found in re.finditer(r"#\[cfg\([^]]*\btest\b[^]]*\)\]\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+\w+\s*\{", text):
        if found.start() < position:
            continue
        kept.append(text[position:found.start()])
        depth, position = 1, found.end()
        while depth and position < len(text):
            depth += {"{": 1, "}": -1}.get(text[position], 0)
            position += 1
    return "".join(kept) + text[position:]
