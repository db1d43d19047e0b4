/* Parts of the search for AVX2: pairs of byte products are added in 16 bits, then in 32. */

#define UNROLL _Pragma("GCC unroll 8")

/* Products of 32 bytes each, four neighbours added. */
TARGET static inline __m256i products_avx2(__m256i concept, __m256i query)
{
    return _mm256_madd_epi16(_mm256_maddubs_epi16(concept, query), _mm256_set1_epi16(1));
}

#define ADD(sum, concept, query) sum = _mm256_add_epi32(sum, products_avx2(concept, query));

#include "one_query.h"

/* Bounds of `high` concepts for sixteen queries side by side, from `lane` on. */
TARGET static inline __attribute__((always_inline)) void
some_avx2(const uint8_t *packed, int64_t width, const float *terms, int64_t stride,
          const Batch *batch, int64_t lane, float *bound, const int high)
{
    __m256i sum[4][2];
    UNROLL for (int i = 0; i < high; i++)
        UNROLL for (int j = 0; j < 2; j++)
            sum[i][j] = _mm256_loadu_si256((const __m256i *)(batch->offset + lane + 8 * j));
    for (int64_t k = 0; k < width; k += 4) {
        __m256i query[2];
        UNROLL for (int j = 0; j < 2; j++)
            query[j] = _mm256_loadu_si256(
                (const __m256i *)(batch->bytes + k * WIDE + 4 * lane + 32 * j));
        UNROLL for (int i = 0; i < high; i++) {
            int32_t four;
            memcpy(&four, packed + i * width + k, 4);
            __m256i concept = _mm256_set1_epi32(four);
            UNROLL for (int j = 0; j < 2; j++)
                ADD(sum[i][j], concept, query[j])
        }
    }
    UNROLL for (int i = 0; i < high; i++) {
        __m256 term[4];
        UNROLL for (int j = 0; j < 4; j++) term[j] = _mm256_set1_ps(terms[i + j * stride]);
        UNROLL for (int j = 0; j < 2; j++) {
            int64_t at = lane + 8 * j;
            __m256 product = _mm256_mul_ps(_mm256_cvtepi32_ps(sum[i][j]), term[1]);
            __m256 value = _mm256_fnmadd_ps(product, _mm256_loadu_ps(batch->scale + at), term[0]);
            value = _mm256_fnmadd_ps(term[2], _mm256_loadu_ps(batch->length + at), value);
            value = _mm256_fnmadd_ps(term[3], _mm256_loadu_ps(batch->rest + at), value);
            _mm256_storeu_ps(bound + i * WIDE + at, value);
        }
    }
}

/* Bounds of a span's concepts for queries side by side. */
TARGET static void tile_avx2(const Index *index, const Batch *batch, const Span *span,
                             float *bound)
{
    int64_t width = width_of(index->d), stride = stride_of(index);
    for (int64_t lane = 0; lane < batch->n; lane += LANES) {
        int64_t at = span->from;
        for (; at + 4 <= span->to; at += 4)
            some_avx2(index->packed + at * width, width, index->terms + at, stride, batch, lane,
                      bound + (at - span->from) * WIDE, 4);
        for (; at < span->to; at++)
            some_avx2(index->packed + at * width, width, index->terms + at, stride, batch, lane,
                      bound + (at - span->from) * WIDE, 1);
    }
}

/* For each of `wide` queries side by side, the first of n concepts with the smallest bound. */
TARGET static inline void least_avx2(const float *bound, int64_t n, int64_t wide, int32_t *least)
{
    for (int64_t lane = 0; lane < wide; lane += 8) {
        __m256 best = _mm256_loadu_ps(bound + lane), place = _mm256_setzero_ps();
        for (int64_t at = 1; at < n; at++) {
            __m256 value = _mm256_loadu_ps(bound + at * WIDE + lane);
            __m256 less = _mm256_cmp_ps(value, best, _CMP_LT_OQ);
            best = _mm256_blendv_ps(best, value, less);
            place = _mm256_blendv_ps(place, _mm256_castsi256_ps(_mm256_set1_epi32((int32_t)at)),
                                     less);
        }
        _mm256_storeu_si256((__m256i *)(least + lane), _mm256_castps_si256(place));
    }
}

/* A bit for each of `wide` queries side by side whose bound does not lie above its limit. */
TARGET static inline uint32_t under_avx2(const float *bound, const float *limit, int64_t wide)
{
    uint32_t found = 0;
    for (int64_t lane = 0; lane < wide; lane += 8)
        found |= (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(
                     _mm256_loadu_ps(bound + lane), _mm256_loadu_ps(limit + lane), _CMP_NGT_UQ))
                 << lane;
    return found;
}

TARGET static inline float total_avx2(__m256 sum)
{
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps(sum, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}

/* The squared distance of two points of d numbers, from their differences. */
TARGET static inline float squared_avx2(const float *x, const float *y, int64_t d)
{
    __m256 sum[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    float rest = 0.0f;
    int64_t k = 0;
    for (; k + 16 <= d; k += 16)
        UNROLL for (int i = 0; i < 2; i++) {
            __m256 gap = _mm256_sub_ps(_mm256_loadu_ps(x + k + 8 * i),
                                       _mm256_loadu_ps(y + k + 8 * i));
            sum[i] = _mm256_fmadd_ps(gap, gap, sum[i]);
        }
    for (; k < d; k++) rest += (x[k] - y[k]) * (x[k] - y[k]);
    return total_avx2(_mm256_add_ps(sum[0], sum[1])) + rest;
}

/* The squared distances of four pairs of points. */
TARGET static inline void squared_pairs_avx2(const float *const *x, const float *const *y,
                                             int64_t d, float *square)
{
    __m256 sum[4];
    int64_t k = 0;
    UNROLL for (int j = 0; j < 4; j++) sum[j] = _mm256_setzero_ps();
    for (; k + 8 <= d; k += 8)
        UNROLL for (int j = 0; j < 4; j++) {
            __m256 gap = _mm256_sub_ps(_mm256_loadu_ps(x[j] + k), _mm256_loadu_ps(y[j] + k));
            sum[j] = _mm256_fmadd_ps(gap, gap, sum[j]);
        }
    UNROLL for (int j = 0; j < 4; j++) {
        float rest = 0.0f;
        for (int64_t at = k; at < d; at++) rest += (x[j][at] - y[j][at]) * (x[j][at] - y[j][at]);
        square[j] = total_avx2(sum[j]) + rest;
    }
}

/* The sixteen squared distances of four points to four others, two of the first at a time. */
TARGET static void squared_many_avx2(const float *const *x, const float *const *y, int64_t d,
                                     float *square)
{
    for (int half = 0; half < 4; half += 2) {
        __m256 sum[2][4];
        int64_t k = 0;
        UNROLL for (int i = 0; i < 2; i++)
            UNROLL for (int j = 0; j < 4; j++) sum[i][j] = _mm256_setzero_ps();
        for (; k + 8 <= d; k += 8)
            UNROLL for (int j = 0; j < 4; j++) {
                __m256 column = _mm256_loadu_ps(y[j] + k);
                UNROLL for (int i = 0; i < 2; i++) {
                    __m256 gap = _mm256_sub_ps(_mm256_loadu_ps(x[half + i] + k), column);
                    sum[i][j] = _mm256_fmadd_ps(gap, gap, sum[i][j]);
                }
            }
        UNROLL for (int i = 0; i < 2; i++)
            UNROLL for (int j = 0; j < 4; j++) {
                float rest = 0.0f;
                for (int64_t at = k; at < d; at++)
                    rest += (x[half + i][at] - y[j][at]) * (x[half + i][at] - y[j][at]);
                square[(half + i) * 4 + j] = total_avx2(sum[i][j]) + rest;
            }
    }
}

/* The place of the smallest bound in [from, to). */
TARGET static int64_t smallest_avx2(const float *bound, int64_t from, int64_t to)
{
    int64_t at = from, best = from;
    if (to - from >= 16) {
        __m256 least = _mm256_set1_ps(INFINITY);
        for (; at + 8 <= to; at += 8) least = _mm256_min_ps(least, _mm256_loadu_ps(bound + at));
        float values[8], value = INFINITY;
        _mm256_storeu_ps(values, least);
        for (int i = 0; i < 8; i++)
            if (values[i] < value) value = values[i];
        __m256 wanted = _mm256_set1_ps(value);
        for (int64_t place = from; place < at; place += 8) {
            int mask = _mm256_movemask_ps(
                _mm256_cmp_ps(_mm256_loadu_ps(bound + place), wanted, _CMP_LE_OQ));
            if (mask) {
                best = place + __builtin_ctz((unsigned)mask);
                break;
            }
        }
    }
    for (; at < to; at++)
        if (bound[at] < bound[best]) best = at;
    return best;
}

/* Collect the places in [from, to) whose bound does not lie above the limit; give their number. */
TARGET static inline int64_t below_avx2(const float *bound, int64_t from, int64_t to, float limit,
                                        int32_t *found)
{
    __m256 most = _mm256_set1_ps(limit);
    int64_t at = from, n_found = 0;
    for (; at + 8 <= to; at += 8) {
        unsigned mask = (unsigned)_mm256_movemask_ps(
            _mm256_cmp_ps(_mm256_loadu_ps(bound + at), most, _CMP_NGT_UQ));
        for (; mask; mask &= mask - 1) found[n_found++] = (int32_t)(at + __builtin_ctz(mask));
    }
    for (; at < to; at++)
        if (!(bound[at] > limit)) found[n_found++] = (int32_t)at;
    return n_found;
}

#undef UNROLL
#undef ADD
