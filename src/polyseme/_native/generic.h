/* Parts of the search in plain C, for any processor. */

/* Vectors of 16 bytes, which every compiler of interest turns into what its processor has. */
typedef int16_t Shorts __attribute__((vector_size(16)));
typedef uint16_t Places __attribute__((vector_size(16)));
typedef int32_t Longs __attribute__((vector_size(16)));

/* Products of eight numbers each, neighbours added. */
static inline Longs pairs_generic(Shorts x, Shorts y)
{
#ifdef __SSE2__
    return (Longs)_mm_madd_epi16((__m128i)x, (__m128i)y);
#else
    Longs product = (Longs)(x * y); /* each fits 16 bits: a byte times at most 127 */
    return ((product << 16) >> 16) + (product >> 16);
#endif
}

/* Sums of products of a group of 16 concepts with two queries. */
static inline void two_generic(const uint8_t *packed, int64_t n_groups, const Query *first,
                               const Query *second, int32_t *sums)
{
    Longs sum[8];
    for (int j = 0; j < 4; j++) {
        sum[j] = (Longs){first->offset, first->offset, first->offset, first->offset};
        sum[4 + j] = (Longs){second->offset, second->offset, second->offset, second->offset};
    }
    for (int64_t k = 0; k < n_groups; k++) {
        const int8_t *x = first->bytes + 4 * k, *y = second->bytes + 4 * k;
        Shorts even_x = {x[0], x[2], x[0], x[2], x[0], x[2], x[0], x[2]};
        Shorts odd_x = {x[1], x[3], x[1], x[3], x[1], x[3], x[1], x[3]};
        Shorts even_y = {y[0], y[2], y[0], y[2], y[0], y[2], y[0], y[2]};
        Shorts odd_y = {y[1], y[3], y[1], y[3], y[1], y[3], y[1], y[3]};
        for (int j = 0; j < 4; j++) {
            Places both;
            memcpy(&both, packed + k * 64 + 16 * j, 16);
            /* Of two neighbouring bytes, which is even depends on the byte order; little here. */
            Shorts even = (Shorts)(both & 255), odd = (Shorts)(both >> 8);
            sum[j] += pairs_generic(even, even_x) + pairs_generic(odd, odd_x);
            sum[4 + j] += pairs_generic(even, even_y) + pairs_generic(odd, odd_y);
        }
    }
    memcpy(sums, sum, sizeof sum);
}

/* Bounds of the concepts [base, to) for up to QUERIES queries; base is a multiple of STRIP. */
static void bounds_generic(const Index *index, const Query *query, int64_t n_queries, int64_t base,
                           int64_t to, float *bound)
{
    int64_t n_groups = groups(index->d);
    for (int64_t at = base; at < to; at += LANES) {
        const float *term = index->terms + at * 4;
        for (int64_t q = 0; q < n_queries; q += 2) {
            int32_t sums[2 * LANES];
            int64_t n_rows = n_queries - q < 2 ? 1 : 2;
            two_generic(index->packed + at * n_groups * 4, n_groups, query + q,
                        query + q + n_rows - 1, sums);
            for (int64_t i = 0; i < n_rows; i++) {
                const Query *one = query + q + i;
                float *place = bound + (q + i) * BLOCK + at - base;
                for (int lane = 0; lane < LANES; lane++)
                    place[lane] = term[lane] -
                                  (float)sums[i * LANES + lane] * term[LANES + lane] * one->scale -
                                  term[2 * LANES + lane] * one->length -
                                  term[3 * LANES + lane] * one->rest;
            }
        }
    }
}

/* The squared distance of two points of d numbers, from their differences. */
static inline float squared_generic(const float *x, const float *y, int64_t d)
{
    float sum[8] = {0};
    int64_t k = 0;
    for (; k + 8 <= d; k += 8)
        for (int i = 0; i < 8; i++) {
            float gap = x[k + i] - y[k + i];
            sum[i] += gap * gap;
        }
    for (int i = 0; k < d; k++, i++) {
        float gap = x[k] - y[k];
        sum[i] += gap * gap;
    }
    return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
}

/* The sixteen squared distances of four points to four others. */
static void squared_many_generic(const float *const *x, const float *const *y, int64_t d,
                                 float *square)
{
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) square[i * 4 + j] = squared_generic(x[i], y[j], d);
}

/* The place of the smallest bound in [from, to). */
static int64_t smallest_generic(const float *bound, int64_t from, int64_t to)
{
    int64_t best = from;
    for (int64_t at = from + 1; at < to; at++)
        if (bound[at] < bound[best]) best = at;
    return best;
}

/* Collect the places in [from, to) whose bound does not lie above the limit; give their number. */
static inline int64_t below_generic(const float *bound, int64_t from, int64_t to, float limit,
                                    int32_t *found)
{
    int64_t n_found = 0;
    for (int64_t at = from; at < to; at++)
        if (!(bound[at] > limit)) found[n_found++] = (int32_t)at;
    return n_found;
}
