/* Parts of the search in plain C, for any processor. */

/* Bounds of a span's concepts for one query. */
static void bounds_generic(const Index *index, const Query *query, const Span *span, float *bound)
{
    int64_t d = index->d, width = width_of(d), stride = stride_of(index);
    for (int64_t at = span->from; at < span->to; at++) {
        const uint8_t *bytes = index->packed + at * width;
        const float *term = index->terms + at;
        int32_t sum = query->offset;
        for (int64_t k = 0; k < d; k++) sum += (int16_t)bytes[k] * (int16_t)query->bytes[k];
        bound[at - span->from] = term[0] - (float)sum * term[stride] * query->scale -
                                 term[2 * stride] * query->length - term[3 * stride] * query->rest;
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

/* The squared distances of four pairs of points. */
static inline void squared_pairs_generic(const float *const *x, const float *const *y, int64_t d,
                                         float *square)
{
    for (int j = 0; j < 4; j++) square[j] = squared_generic(x[j], y[j], d);
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
