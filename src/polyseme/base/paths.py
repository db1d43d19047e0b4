"""Labels in hierarchies: a label may be a path, such as `people|adults|figure`.

In: labels. Out: the parts of paths. A path is a label's identity, so equal *leaves*, its last
parts, on different paths are different labels. What lies above a path, its *ancestors*, are labels
of their own, which it implies: `people|adults` and `people`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

SEPARATOR = "|"  # between the parts of a path; programs that write another one are converted


def parts_of(label: str, separator: str = SEPARATOR) -> list[str]:
    """Return the parts of a path, without white space around them; a flat label is one part.

    A label is flat, whatever it holds, where one of its parts would be empty.
    """
    if not separator:
        return [label]
    words = [word.strip() for word in label.split(separator)]
    return words if all(words) else [label]


def ancestors(label: str, separator: str = SEPARATOR) -> list[str]:
    """Return what lies above a label, the nearest first; empty for a flat one."""
    words = parts_of(label, separator)
    return [separator.join(words[:end]) for end in range(len(words) - 1, 0, -1)]


def leaf_of(label: str, separator: str = SEPARATOR) -> str:
    """Return the last part of a label, by which people know it."""
    return parts_of(label, separator)[-1]


def columns_by_leaf(
    labels: Sequence[str], key: Callable[[str], str], separator: str = SEPARATOR
) -> dict[str, int]:
    """Return the columns of paths by the keys of their leaves, of leaves that one label has.

    So a path is understood by its last part, as it was called before it was one.
    """
    columns_of_leaf: dict[str, list[int]] = {}
    for column, label in enumerate(labels):
        if separator and separator in label:
            leaf_key = key(leaf_of(label, separator))
            columns_of_leaf.setdefault(leaf_key, []).append(column)
    return {leaf: columns[0] for leaf, columns in columns_of_leaf.items() if len(columns) == 1}


def moved(label: str, branch: str, new_branch: str, separator: str = SEPARATOR) -> str:
    """Return the path that a label below a branch has where the branch has another path."""
    below = parts_of(label, separator)[len(parts_of(branch, separator)) :]
    return separator.join([new_branch, *below])
