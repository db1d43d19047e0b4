"""The kernel of `fused`, in triton; imported only where triton is there."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]  # triton has no annotations
def tiles(  # type: ignore[no-untyped-def]  # parameters are triton's, not Python's
    half,
    concepts,
    lengths,
    squares,
    segments,
    least,
    second,
    place,
    best,
    n_queries,
    n_tiles,
    n_segments,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
    RUN: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """Leave, of each query and tile of concepts, the two smallest squared distances.

    Parameters
    ----------
    half, concepts : float16, (n_queries, WIDTH) and (n_tiles * TILE, WIDTH)
    lengths, squares : float32, (n_queries,) and (n_tiles * TILE,)
        Their squared lengths.
    segments : int32, (n_tiles,)
        The label of each tile.
    least, second, place : float32, float32 and int32, (n_queries, n_tiles)
        Written: the smallest, the next, and where in the tile the smallest stands.
    best : int32, (n_queries, n_segments)
        Lowered: the bits of the smallest of each label.
    """
    row = tl.program_id(0) * TILE + tl.arange(0, TILE)
    lane = tl.arange(0, TILE)
    depth = tl.arange(0, DEPTH)
    there = row < n_queries
    length = tl.load(lengths + row, mask=there, other=0.0)
    first = tl.program_id(1) * RUN
    for tile in range(first, tl.minimum(first + RUN, n_tiles)):
        concept = tl.cast(tile, tl.int64) * TILE + lane
        sums = tl.zeros((TILE, TILE), dtype=tl.float32)
        for at in range(0, WIDTH, DEPTH):
            left = tl.load(
                half + row[:, None] * WIDTH + at + depth[None, :], mask=there[:, None], other=0.0
            )
            right = tl.load(concepts + concept[None, :] * WIDTH + at + depth[:, None])
            sums = tl.dot(left, right, sums)
        squared = length[:, None] + tl.load(squares + concept)[None, :] - 2.0 * sums
        squared = tl.maximum(squared, 0.0)
        smallest, where = tl.min(squared, axis=1, return_indices=True)
        others = tl.where(lane[None, :] == where[:, None], float("inf"), squared)
        out = row.to(tl.int64) * n_tiles + tile
        tl.store(least + out, smallest, mask=there)
        tl.store(second + out, tl.min(others, axis=1), mask=there)
        tl.store(place + out, where.to(tl.int32), mask=there)
        # Not negative, so the bits are ordered as the numbers are.
        segment = tl.load(segments + tile)
        bits = smallest.to(tl.int32, bitcast=True)
        tl.atomic_min(best + row.to(tl.int64) * n_segments + segment, bits, mask=there)
