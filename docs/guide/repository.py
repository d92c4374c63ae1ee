"""A preprocessor of mdBook: a link to a page outside of this book becomes an address in the repository."""
import json
import os
import re
import sys

BASE = "https://github.com/artillery/artillery/blob/main/"
SRC = "docs/guide/src"


def absolute(found):
    target = os.path.normpath(os.path.join(SRC, found[2]))
    return found[0] if target.startswith(f"{SRC}/") else f"]({BASE}{target}{found[3] or ''})"


def visit(item):
    if chapter := item.get("Chapter"):
        chapter["content"] = re.sub(r"(\]\()((?:\.\./)+[^)#\s]*)(#[^)\s]*)?\)", absolute, chapter["content"])
        for inner in chapter["sub_items"]:
            visit(inner)


if sys.argv[1:2] != ["supports"]:
    _, book = json.load(sys.stdin)
    # The name of the list differs between releases of mdBook.
    for item in book.get("items", book.get("sections", [])):
        if isinstance(item, dict):
            visit(item)
    json.dump(book, sys.stdout)
