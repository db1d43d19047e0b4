/* Parts of the search for AVX2: pairs of byte products are added in 16 bits, then in 32. */

#define UNROLL _Pragma("GCC unroll 8")

/* Bounds of `wide` halves of a group of 16 concepts for `high` queries. */
TARGET static inline __attribute__((always_inline)) void
tile_avx2(const Index *index, const Query *query, int64_t group, float *bound, const int high)
{
    int64_t n_groups = groups(index->d);
    const uint8_t *packed = index->packed + group * n_groups * 64;
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i sum[4][2];
    UNROLL for (int i = 0; i < high; i++)
        UNROLL for (int j = 0; j < 2; j++) sum[i][j] = _mm256_set1_epi32(query[i].offset);
    for (int64_t k = 0; k < n_groups; k++) {
        __m256i column[2];
        UNROLL for (int j = 0; j < 2; j++)
            column[j] = _mm256_loadu_si256((const __m256i *)(packed + k * 64 + 32 * j));
        UNROLL for (int i = 0; i < high; i++) {
            int32_t four;
            memcpy(&four, query[i].bytes + 4 * k, 4);
            __m256i row = _mm256_set1_epi32(four);
            UNROLL for (int j = 0; j < 2; j++) {
                __m256i pairs = _mm256_maddubs_epi16(column[j], row);
                sum[i][j] = _mm256_add_epi32(sum[i][j], _mm256_madd_epi16(pairs, ones));
            }
        }
    }
    const float *term = index->terms + group * 64;
    UNROLL for (int j = 0; j < 2; j++) {
        __m256 square = _mm256_loadu_ps(term + 8 * j), scale = _mm256_loadu_ps(term + 16 + 8 * j);
        __m256 rest = _mm256_loadu_ps(term + 32 + 8 * j);
        __m256 norm = _mm256_loadu_ps(term + 48 + 8 * j);
        UNROLL for (int i = 0; i < high; i++) {
            __m256 product = _mm256_mul_ps(_mm256_cvtepi32_ps(sum[i][j]), scale);
            __m256 value = _mm256_fnmadd_ps(product, _mm256_set1_ps(query[i].scale), square);
            value = _mm256_fnmadd_ps(rest, _mm256_set1_ps(query[i].length), value);
            value = _mm256_fnmadd_ps(norm, _mm256_set1_ps(query[i].rest), value);
            _mm256_storeu_ps(bound + i * BLOCK + 8 * j, value);
        }
    }
}

/* Bounds of the concepts [base, to) for up to QUERIES queries; base is a multiple of STRIP. */
TARGET static void bounds_avx2(const Index *index, const Query *query, int64_t n_queries,
                               int64_t base, int64_t to, float *bound)
{
    int64_t end = (to + LANES - 1) / LANES;
    for (int64_t group = base / LANES; group < end; group++) {
        float *at = bound + group * LANES - base;
        for (int64_t q = 0; q < n_queries; q += 4) {
            float *place = at + q * BLOCK;
            switch (n_queries - q) {
            case 1: tile_avx2(index, query + q, group, place, 1); break;
            case 2: tile_avx2(index, query + q, group, place, 2); break;
            case 3: tile_avx2(index, query + q, group, place, 3); break;
            default: tile_avx2(index, query + q, group, place, 4); break;
            }
        }
    }
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
