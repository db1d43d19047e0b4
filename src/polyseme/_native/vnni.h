/* Parts of the search for AVX-512 with VNNI: 64 products of bytes in one instruction. */

/* Written out, since some compilers move sums to memory and back around the intrinsic. */
#define ADD(sum, concept, query) \
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(concept), "v"(query));

/* ------------------------------------------------------------------ one query */

#include "one_query.h"

TARGET static inline __mmask16 lanes_vnni(int64_t at, int64_t to)
{
    return to - at >= 16 ? 0xffff : (__mmask16)((1u << (to - at)) - 1);
}

/* The place of the smallest bound in [from, to). */
TARGET static inline int64_t smallest_vnni(const float *bound, int64_t from, int64_t to)
{
    __m512 best = _mm512_set1_ps(INFINITY);
    __m512i places = _mm512_set1_epi32((int32_t)from), step = _mm512_set1_epi32(16);
    __m512i here = _mm512_add_epi32(_mm512_set1_epi32((int32_t)from),
                                    _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3,
                                                     2, 1, 0));
    for (int64_t at = from; at < to; at += 16) {
        __mmask16 lanes = lanes_vnni(at, to);
        __m512 value = _mm512_maskz_loadu_ps(lanes, bound + at);
        __mmask16 less = _mm512_mask_cmp_ps_mask(lanes, value, best, _CMP_LT_OQ);
        best = _mm512_mask_mov_ps(best, less, value);
        places = _mm512_mask_mov_epi32(places, less, here);
        here = _mm512_add_epi32(here, step);
    }
    __mmask16 least = _mm512_cmp_ps_mask(best, _mm512_set1_ps(_mm512_reduce_min_ps(best)),
                                         _CMP_EQ_OQ);
    return _mm_cvtsi128_si32(_mm512_castsi512_si128(_mm512_maskz_compress_epi32(least, places)));
}

/* Collect the places in [from, to) whose bound does not lie above the limit; give their number. */
TARGET static inline int64_t below_vnni(const float *bound, int64_t from, int64_t to, float limit,
                                        int32_t *found)
{
    __m512 most = _mm512_set1_ps(limit);
    int64_t n_found = 0;
    for (int64_t at = from; at < to; at += 16) {
        __mmask16 lanes = lanes_vnni(at, to);
        uint32_t mask = _mm512_mask_cmp_ps_mask(lanes, _mm512_maskz_loadu_ps(lanes, bound + at),
                                                most, _CMP_NGT_UQ);
        for (; mask; mask &= mask - 1) found[n_found++] = (int32_t)(at + __builtin_ctz(mask));
    }
    return n_found;
}

/* ------------------------------------------------------------------ queries side by side */

/* Sums are named one by one: compilers leave arrays of them in memory. */
#define TWELVE(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define START(i) __m512i low##i = low, high##i = high;
#define STEP(i)                                                                       \
    {                                                                                 \
        int32_t four;                                                                 \
        memcpy(&four, packed + i * width + k, 4);                                     \
        __m512i concept = _mm512_set1_epi32(four);                                    \
        ADD(low##i, concept, first)                                                   \
        if (both) ADD(high##i, concept, second)                                       \
    }
#define KEEP(i)                                                                       \
    keep_vnni(term + i, stride, batch, 0, low##i, bound + i * WIDE);                  \
    if (both) keep_vnni(term + i, stride, batch, LANES, high##i, bound + i * WIDE);

/* Turn the sums of one concept with sixteen queries into bounds. */
TARGET static inline void keep_vnni(const float *term, int64_t stride, const Batch *batch,
                                    int64_t lane, __m512i sum, float *bound)
{
    __m512 product = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), _mm512_set1_ps(term[stride]));
    __m512 value =
        _mm512_fnmadd_ps(product, _mm512_loadu_ps(batch->scale + lane), _mm512_set1_ps(term[0]));
    value = _mm512_fnmadd_ps(_mm512_set1_ps(term[2 * stride]),
                             _mm512_loadu_ps(batch->length + lane), value);
    value = _mm512_fnmadd_ps(_mm512_set1_ps(term[3 * stride]),
                             _mm512_loadu_ps(batch->rest + lane), value);
    _mm512_storeu_ps(bound + lane, value);
}

/* Bounds of twelve concepts for all queries of a batch; `both` halves of them or the first. */
TARGET static inline __attribute__((always_inline)) void
twelve_vnni(const uint8_t *packed, int64_t width, const float *term, int64_t stride,
            const Batch *batch, float *bound, const int both)
{
    __m512i low = _mm512_loadu_si512(batch->offset);
    __m512i high = _mm512_loadu_si512(batch->offset + LANES);
    TWELVE(START)
    for (int64_t k = 0; k < width; k += 4) {
        __m512i first = _mm512_loadu_si512(batch->bytes + k * WIDE);
        __m512i second = _mm512_loadu_si512(batch->bytes + k * WIDE + 64);
        TWELVE(STEP)
    }
    TWELVE(KEEP)
}

/* Bounds of a span's concepts for queries side by side, and of some that follow. */
TARGET static __attribute__((noinline)) void
tile_vnni(const Index *index, const Batch *batch, const Span *span, float *bound)
{
    int64_t width = width_of(index->d), stride = stride_of(index);
    const uint8_t *packed = index->packed + span->from * width;
    for (int64_t at = span->from; at < span->to; at += 12) {
        const float *term = index->terms + at;
        if (batch->n > LANES) twelve_vnni(packed, width, term, stride, batch, bound, 1);
        else twelve_vnni(packed, width, term, stride, batch, bound, 0);
        packed += 12 * width;
        bound += 12 * WIDE;
    }
}

/* For each of `wide` queries side by side, the first of n concepts with the smallest bound. */
TARGET static inline void least_vnni(const float *bound, int64_t n, int64_t wide, int32_t *least)
{
    for (int64_t lane = 0; lane < wide; lane += LANES) {
        __m512 best = _mm512_loadu_ps(bound + lane);
        __m512i place = _mm512_setzero_si512();
        for (int64_t at = 1; at < n; at++) {
            __m512 value = _mm512_loadu_ps(bound + at * WIDE + lane);
            __mmask16 less = _mm512_cmp_ps_mask(value, best, _CMP_LT_OQ);
            best = _mm512_mask_mov_ps(best, less, value);
            place = _mm512_mask_mov_epi32(place, less, _mm512_set1_epi32((int32_t)at));
        }
        _mm512_storeu_si512(least + lane, place);
    }
}

/* A bit for each of `wide` queries side by side whose bound does not lie above its limit. */
TARGET static inline uint32_t under_vnni(const float *bound, const float *limit, int64_t wide)
{
    uint32_t found = _mm512_cmp_ps_mask(_mm512_loadu_ps(bound), _mm512_loadu_ps(limit),
                                        _CMP_NGT_UQ);
    if (wide == LANES) return found;
    return found | (uint32_t)_mm512_cmp_ps_mask(_mm512_loadu_ps(bound + LANES),
                                                _mm512_loadu_ps(limit + LANES), _CMP_NGT_UQ)
                       << 16;
}

/* ------------------------------------------------------------------ exact distances */

/* The squared distance of two points of d numbers, from their differences. */
TARGET static inline float squared_vnni(const float *x, const float *y, int64_t d)
{
    __m512 even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
    int64_t k = 0;
    for (; k + 32 <= d; k += 32) {
        __m512 first = _mm512_sub_ps(_mm512_loadu_ps(x + k), _mm512_loadu_ps(y + k));
        __m512 second = _mm512_sub_ps(_mm512_loadu_ps(x + k + 16), _mm512_loadu_ps(y + k + 16));
        even = _mm512_fmadd_ps(first, first, even);
        odd = _mm512_fmadd_ps(second, second, odd);
    }
    for (; k < d; k += 16) {
        __mmask16 mask = d - k >= 16 ? 0xffff : (__mmask16)((1u << (d - k)) - 1);
        __m512 gap = _mm512_sub_ps(_mm512_maskz_loadu_ps(mask, x + k),
                                   _mm512_maskz_loadu_ps(mask, y + k));
        even = _mm512_fmadd_ps(gap, gap, even);
    }
    return _mm512_reduce_add_ps(_mm512_add_ps(even, odd));
}

#define ALL(X) X(0, 0) X(0, 1) X(0, 2) X(0, 3) X(1, 0) X(1, 1) X(1, 2) X(1, 3) \
               X(2, 0) X(2, 1) X(2, 2) X(2, 3) X(3, 0) X(3, 1) X(3, 2) X(3, 3)
#define ZERO(i, j) __m512 square##i##j = _mm512_setzero_ps();
#define GAP(i, j)                                                                     \
    {                                                                                 \
        __m512 gap = _mm512_sub_ps(row##i, column##j);                                \
        square##i##j = _mm512_fmadd_ps(gap, gap, square##i##j);                       \
    }
/* Sums of four vectors, as the lanes of one. */
#define FOUR(i)                                                                       \
    {                                                                                 \
        __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(square##i##0, square##i##1),     \
                                  _mm512_unpackhi_ps(square##i##0, square##i##1));    \
        __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(square##i##2, square##i##3),     \
                                  _mm512_unpackhi_ps(square##i##2, square##i##3));    \
        __m512 all = _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44),                   \
                                   _mm512_shuffle_ps(ab, cd, 0xee));                  \
        __m256 half = _mm256_add_ps(_mm512_castps512_ps256(all),                      \
                                    _mm512_extractf32x8_ps(all, 1));                  \
        _mm_storeu_ps(square + 4 * i, _mm_add_ps(_mm256_castps256_ps128(half),        \
                                                 _mm256_extractf128_ps(half, 1)));    \
    }

/* The squared distances of four pairs of points. */
TARGET static inline void squared_pairs_vnni(const float *const *x, const float *const *y,
                                             int64_t d, float *square)
{
    const float *x0 = x[0], *x1 = x[1], *x2 = x[2], *x3 = x[3];
    const float *y0 = y[0], *y1 = y[1], *y2 = y[2], *y3 = y[3];
    __m512 square00 = _mm512_setzero_ps(), square01 = square00, square02 = square00;
    __m512 square03 = square00;
#define PAIR(j)                                                                       \
    {                                                                                 \
        __m512 gap = _mm512_sub_ps(_mm512_maskz_loadu_ps(mask, x##j + k),             \
                                   _mm512_maskz_loadu_ps(mask, y##j + k));            \
        square0##j = _mm512_fmadd_ps(gap, gap, square0##j);                           \
    }
    int64_t k = 0;
    __mmask16 mask = 0xffff;
    for (; k + 16 <= d; k += 16) {
        PAIR(0) PAIR(1) PAIR(2) PAIR(3)
    }
    if (k < d) {
        mask = (__mmask16)((1u << (d - k)) - 1);
        PAIR(0) PAIR(1) PAIR(2) PAIR(3)
    }
    FOUR(0)
}

/* The sixteen squared distances of four points to four others. */
TARGET static void squared_many_vnni(const float *const *x, const float *const *y, int64_t d,
                                     float *square)
{
    const float *x0 = x[0], *x1 = x[1], *x2 = x[2], *x3 = x[3];
    const float *y0 = y[0], *y1 = y[1], *y2 = y[2], *y3 = y[3];
    ALL(ZERO)
    for (int64_t k = 0; k < d; k += 16) {
        __mmask16 mask = d - k >= 16 ? 0xffff : (__mmask16)((1u << (d - k)) - 1);
        __m512 row0 = _mm512_maskz_loadu_ps(mask, x0 + k), row1 = _mm512_maskz_loadu_ps(mask, x1 + k);
        __m512 row2 = _mm512_maskz_loadu_ps(mask, x2 + k), row3 = _mm512_maskz_loadu_ps(mask, x3 + k);
        __m512 column0 = _mm512_maskz_loadu_ps(mask, y0 + k);
        __m512 column1 = _mm512_maskz_loadu_ps(mask, y1 + k);
        __m512 column2 = _mm512_maskz_loadu_ps(mask, y2 + k);
        __m512 column3 = _mm512_maskz_loadu_ps(mask, y3 + k);
        ALL(GAP)
    }
    FOUR(0) FOUR(1) FOUR(2) FOUR(3)
}

#undef ADD
#undef TWELVE
#undef START
#undef STEP
#undef KEEP
#undef ALL
#undef ZERO
#undef GAP
#undef FOUR
#undef PAIR
