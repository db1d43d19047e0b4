/* Parts of the search for AVX-512 with VNNI: 64 products of bytes in one instruction. */

/* Sums are named one by one: compilers leave arrays of them in memory. */
#define COLUMNS(X, i) X(i, 0) X(i, 1) X(i, 2) X(i, 3)
#define ROWS(X) COLUMNS(X, 0) COLUMNS(X, 1) COLUMNS(X, 2) COLUMNS(X, 3) COLUMNS(X, 4) COLUMNS(X, 5)
#define START(i, j) __m512i sum##i##j = _mm512_set1_epi32(query[i].offset);
#define LOAD(i, j) __m512i column##j = _mm512_loadu_si512(packed + (j * n_groups + k) * 64);
/* Written out, since some compilers move sums to memory and back around the intrinsic. */
#define ADD(i, j) __asm__("vpdpbusd %2, %1, %0" : "+v"(sum##i##j) : "v"(column##j), "v"(row));
#define ROW(i)                                                                        \
    {                                                                                 \
        int32_t four;                                                                 \
        memcpy(&four, query[i].bytes + 4 * k, 4);                                     \
        __m512i row = _mm512_set1_epi32(four);                                        \
        COLUMNS(ADD, i)                                                               \
    }
#define NEXT(j)                                                                       \
    {                                                                                 \
        int32_t four;                                                                 \
        memcpy(&four, query->bytes + 4 * (k + j), 4);                                 \
        __m512i row = _mm512_set1_epi32(four);                                        \
        __m512i column##j = _mm512_loadu_si512(packed + (k + j) * 64);                \
        ADD(0, j)                                                                     \
    }
#define KEEP(i, j) keep_vnni(terms + 64 * j, query + i, sum##i##j, bound + i * BLOCK + 16 * j);

/* Turn sums of products into bounds. */
TARGET static inline void keep_vnni(const float *term, const Query *query, __m512i sum, float *bound)
{
    __m512 product = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), _mm512_loadu_ps(term + 16));
    __m512 value =
        _mm512_fnmadd_ps(product, _mm512_set1_ps(query->scale), _mm512_loadu_ps(term));
    value = _mm512_fnmadd_ps(_mm512_loadu_ps(term + 32), _mm512_set1_ps(query->length), value);
    value = _mm512_fnmadd_ps(_mm512_loadu_ps(term + 48), _mm512_set1_ps(query->rest), value);
    _mm512_store_ps(bound, value);
}

/* Bounds of a strip of 64 concepts for six queries. */
TARGET static __attribute__((noinline)) void
six_vnni(const uint8_t *packed, const float *terms, int64_t n_groups, const Query *query,
         float *bound)
{
    ROWS(START)
    for (int64_t k = 0; k < n_groups; k++) {
        COLUMNS(LOAD, 0)
        ROW(0) ROW(1) ROW(2) ROW(3) ROW(4) ROW(5)
    }
    ROWS(KEEP)
}

/* Bounds of a strip of 64 concepts for one query, read from front to back as it lies there. */
TARGET static void one_vnni(const uint8_t *packed, const float *terms, int64_t n_groups,
                            const Query *query, float *bound)
{
    for (int j = 0; j < 4; j++, packed += n_groups * 64) {
        START(0, 0)
        __m512i sum01 = _mm512_setzero_si512(), sum02 = sum01, sum03 = sum01;
        int64_t k = 0;
        for (; k + 4 <= n_groups; k += 4) {
            NEXT(0) NEXT(1) NEXT(2) NEXT(3)
        }
        for (; k < n_groups; k++) {
            NEXT(0)
        }
        sum00 = _mm512_add_epi32(_mm512_add_epi32(sum00, sum01), _mm512_add_epi32(sum02, sum03));
        keep_vnni(terms + 64 * j, query, sum00, bound + 16 * j);
    }
}

/* Bounds of the concepts [base, to) for up to QUERIES queries; base is a multiple of STRIP. */
TARGET static void bounds_vnni(const Index *index, const Query *query, int64_t n_queries,
                               int64_t base, int64_t to, float *bound)
{
    int64_t n_groups = groups(index->d);
    for (int64_t at = base; at < to; at += STRIP) {
        const uint8_t *packed = index->packed + at * n_groups * 4;
        const float *terms = index->terms + at * 4;
        int64_t q = 0;
        for (; q + 6 <= n_queries; q += 6)
            six_vnni(packed, terms, n_groups, query + q, bound + q * BLOCK + at - base);
        for (; q < n_queries; q++)
            one_vnni(packed, terms, n_groups, query + q, bound + q * BLOCK + at - base);
    }
}

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

#undef COLUMNS
#undef ROWS
#undef START
#undef LOAD
#undef ADD
#undef ROW
#undef KEEP
#undef NEXT
#undef ALL
#undef ZERO
#undef GAP
#undef FOUR
