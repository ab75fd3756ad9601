# SPDX-License-Identifier: MIT OR Apache-2.0
"""stubs.py STUB: compares the docstrings in the stub of the extension with those of the installed extension, of which they are a copy, because
editors read only the stub. SLUICE_STUBS=update writes them.
"""

import ast
import inspect
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import sluice

Member = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def public(node: ast.Module | ast.ClassDef, thing: object) -> Iterator[tuple[Member, str]]:
    """The public members of a module or a class, with their docstrings."""
    for member in node.body:
        if isinstance(member, Member) and not member.name.startswith("_"):
            found = getattr(thing, member.name)
            yield member, inspect.cleandoc(found.__doc__ or "")
            if isinstance(member, ast.ClassDef):
                yield from public(member, found)


def docstring(text: str, indent: str) -> list[str]:
    first, *rest = text.replace("\\", "\\\\").splitlines()
    if not rest:
        return [f'{indent}"""{first}"""']
    return [f'{indent}"""{first}', *(f"{indent}{line}".rstrip() for line in rest), f'{indent}"""']


def with_docstrings(source: str) -> str:
    lines = source.splitlines()
    # From the end on, so that the numbers of the lines before remain.
    for member, text in sorted(public(ast.parse(source), sluice._sluice), key=lambda found: -found[0].lineno):
        body = member.body[0]
        is_class = isinstance(member, ast.ClassDef)
        if ast.get_docstring(member) is not None:
            header = body.lineno - 1
            del lines[header : body.end_lineno]
        else:
            # A header of a class is one line here, and "..." in the last line of the header of a function.
            header = member.lineno if is_class else body.lineno
        line = lines[header - 1].removesuffix(" ...")
        indent = " " * (member.col_offset + 4)
        lines[header - 1 : header] = [line, *docstring(text, indent)] if text else [line if is_class else f"{line} ..."]
    return "\n".join(lines) + "\n"


path = Path(sys.argv[1])
source = path.read_text()
expected = with_docstrings(source)
if os.environ.get("SLUICE_STUBS") == "update":
    path.write_text(expected)
elif source != expected:
    sys.exit(f"{path} has other docstrings than the extension; run: SLUICE_STUBS=update bindings/python/check")
