"""Labels in hierarchies: a label may be a path, such as `people|adults|figure`.

In: labels. Out: the parts of paths. A path is a label's identity, so equal *leaves*, its last
parts, on different paths are different labels. What lies above a path, its *ancestors*, are labels
of their own, which it implies: `people|adults` and `people`.
"""

from __future__ import annotations

SEPARATOR = "|"  # between the parts of a path; programs that write another one are converted


def parts_of(label: str, separator: str = SEPARATOR) -> list[str]:
    """Return the parts of a path, without white space around them; a flat label is one part.

    A label is flat, whatever it holds, where one of its parts would be empty.
    """
    parts = [part.strip() for part in label.split(separator)] if separator else [label]
    return parts if all(parts) else [label]


def ancestors(label: str, separator: str = SEPARATOR) -> list[str]:
    """Return what lies above a label, the nearest first; empty for a flat one."""
    parts = parts_of(label, separator)
    return [separator.join(parts[:end]) for end in range(len(parts) - 1, 0, -1)]


def leaf_of(label: str, separator: str = SEPARATOR) -> str:
    """Return the last part of a label, by which people know it."""
    return parts_of(label, separator)[-1]


def moved(label: str, branch: str, new_branch: str, separator: str = SEPARATOR) -> str:
    """Return the path that a label below a branch has where the branch has another path."""
    below = parts_of(label, separator)[len(parts_of(branch, separator)) :]
    return separator.join([new_branch, *below])
