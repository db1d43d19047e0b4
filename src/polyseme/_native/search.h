/* The search itself, written once and compiled for each instruction set: the includer defines
   NAME, TARGET, TOP and the parts `bounds`, `squared`, `squared_many`, `smallest` and `below`. */

/* Quantise d numbers relative to the centre to whole numbers from -top to top. */
TARGET static void NAME(quantise)(const float *x, const float *centre, int64_t d, int top,
                                  int8_t *bytes, Parts *parts)
{
    /* Eight sums each, so that a compiler may add them side by side. */
    double largest[8] = {0}, all[8] = {0}, kept[8] = {0}, rest[8] = {0};
    for (int64_t k = 0; k < d; k += 8) {
        int n = d - k < 8 ? (int)(d - k) : 8;
        for (int i = 0; i < n; i++) {
            double value = fabs((double)x[k + i] - (double)centre[k + i]);
            largest[i] = value > largest[i] ? value : largest[i];
        }
    }
    for (int i = 1; i < 8; i++) largest[0] = largest[i] > largest[0] ? largest[i] : largest[0];
    float step = (float)(largest[0] / top);
    /* A step that is hardly a normal float is not multiplied with: all is rest then. */
    if (!(step > 1e-30f)) step = 0.0f;
    double per = step > 0.0f ? 1.0 / (double)step : 0.0;
    for (int64_t k = 0; k < d; k += 8) {
        int n = d - k < 8 ? (int)(d - k) : 8;
        for (int i = 0; i < n; i++) {
            double value = (double)x[k + i] - (double)centre[k + i];
            /* Adding a large number rounds to a whole one; |value| / step is below top + 1/2. */
            double whole = (value * per + 6755399441055744.0) - 6755399441055744.0;
            double near = whole * (double)step;
            bytes[k + i] = (int8_t)(int32_t)whole;
            all[i] += value * value;
            kept[i] += near * near;
            rest[i] += (value - near) * (value - near);
        }
    }
    for (int i = 1; i < 8; i++) {
        all[0] += all[i];
        kept[0] += kept[i];
        rest[0] += rest[i];
    }
    for (int64_t k = d; k < groups(d) * 4; k++) bytes[k] = 0;
    parts->norm = sqrt(all[0]);
    parts->kept = sqrt(kept[0]);
    parts->rest = sqrt(rest[0]);
    parts->scale = step;
}

TARGET static void NAME(pack)(const float *points, const float *centre, int64_t n, int64_t d,
                              int64_t first, int64_t last, uint8_t *packed, float *terms,
                              int8_t *row)
{
    int64_t n_groups = groups(d);
    for (int64_t concept = first * LANES; concept < last * LANES; concept++) {
        int64_t lane = concept % LANES, group = concept / LANES;
        uint8_t *bytes = packed + group * n_groups * 4 * LANES + lane * 4;
        float *term = terms + group * 4 * LANES + lane;
        Parts parts = {0.0, 0.0, 0.0, 0.0f};
        if (concept < n) NAME(quantise)(points + concept * d, centre, d, 127, row, &parts);
        else memset(row, 0, (size_t)(n_groups * 4));
        for (int64_t k = 0; k < n_groups; k++) {
            uint32_t four;
            memcpy(&four, row + 4 * k, 4);
            four ^= 0x80808080u; /* adds 128 to each byte */
            memcpy(bytes + k * 4 * LANES, &four, 4);
        }
        term[0] = concept < n ? (float)(parts.norm * parts.norm * (1.0 - SLACK * UNIT)) : INFINITY;
        term[LANES] = 2.0f * parts.scale;
        term[2 * LANES] = up(2.0 * parts.rest * (1.0 + 1e-9));
        term[3 * LANES] = up(2.0 * parts.norm * (1.0 + 1e-9));
    }
}

TARGET static void NAME(prepare)(const Index *index, const float *raw, int8_t *bytes, float *out,
                                 Query *query)
{
    Parts parts;
    NAME(quantise)(raw, index->centre, index->d, TOP, bytes, &parts);
    int32_t sum = 0;
    for (int64_t k = 0; k < index->d; k++) sum += bytes[k];
    query->raw = raw;
    query->bytes = bytes;
    query->out = out;
    query->offset = -128 * sum;
    query->scale = parts.scale;
    query->length = up(parts.kept * (1.0 + 1e-9));
    query->rest = up(parts.rest * (1.0 + 1e-9));
    query->square = parts.norm * parts.norm * (1.0 - SLACK * UNIT);
}

/* The squared distance of one concept. */
TARGET static inline double NAME(measure)(const Index *index, const Query *query, int64_t concept)
{
    const float *point = index->points + concept * index->d;
    float square = NAME(squared)(point, query->raw, index->d);
    return square < SMALL ? squared_exactly(point, query->raw, index->d) : (double)square;
}

/* For each label of a block of which nothing is known yet, measure the concept with the smallest
   bound: it sets a limit that leaves few others. Done for all labels before any is looked at, so
   that no branch waits for a sum. */
TARGET static void NAME(start)(const Index *index, const Query *query, const float *bound,
                               const Span *span, int32_t *least, double *best)
{
    for (int64_t segment = span->s, i = 0; segment < span->s_end; segment++, i++) {
        int64_t from = segment == span->s ? span->from : index->starts[segment];
        int64_t to = segment == span->s_end - 1 ? span->to : index->starts[segment + 1];
        best[i] = held(query->out + index->labels[segment]);
        least[i] = -1;
        if (best[i] == INFINITY) {
            least[i] = (int32_t)NAME(smallest)(bound, from - span->base, to - span->base);
            best[i] = NAME(measure)(index, query, span->base + least[i]);
        }
    }
}

/* Measure those of one label's concepts [from, to) of a block that may be nearer than `best`,
   which is known or that of the concept at `least`. */
TARGET static void NAME(look)(const Index *index, const Query *query, const float *bound,
                              int64_t base, int64_t from, int64_t to, int64_t least, double best,
                              float *place, int shared)
{
    int32_t found[BLOCK];
    double before = least < 0 ? best : INFINITY;
    float limit = limit_of(query, best);
    int64_t n_found = NAME(below)(bound, from, to, limit, found);
    for (int64_t i = 0; i < n_found; i++) {
        if (found[i] == least || bound[found[i]] > limit) continue;
        double square = NAME(measure)(index, query, base + found[i]);
        best = square < best ? square : best;
        limit = limit_of(query, best);
    }
    if (best < before) lower(place, (float)sqrt(best), shared);
}

/* Measure every concept of a run of small labels: segments [s, s_end), concepts [from, to). */
TARGET static void NAME(direct)(const Index *index, const Query *query, int64_t n_queries,
                                int64_t s, int64_t from, int64_t to, int64_t s_first,
                                int64_t s_last)
{
    float square[4 * 4], distance[4 * 4];
    int64_t d = index->d;
    for (int64_t q = 0; q < n_queries; q += 4) {
        int64_t n_rows = n_queries - q < 4 ? n_queries - q : 4;
        int64_t segment = s;
        float best[4] = {INFINITY, INFINITY, INFINITY, INFINITY};
        for (int64_t c = from; c < to; c += 4) {
            int64_t n_columns = to - c < 4 ? to - c : 4;
            const float *rows[4], *columns[4];
            for (int i = 0; i < 4; i++) {
                rows[i] = query[q + (i < n_rows ? i : 0)].raw;
                columns[i] = index->points + (c + (i < n_columns ? i : 0)) * d;
            }
            if (n_rows > 1) NAME(squared_many)(rows, columns, d, square);
            else
                for (int i = 0; i < 16; i++)
                    square[i] = i < n_columns ? NAME(squared)(columns[i], rows[0], d) : INFINITY;
            for (int i = 0; i < 4 * n_rows; i++) {
                if (square[i] < SMALL)
                    distance[i] = (float)sqrt(squared_exactly(columns[i % 4], rows[i / 4], d));
                else
                    distance[i] = sqrtf(square[i]);
            }
            for (int64_t j = 0; j < n_columns; j++) {
                for (int i = 0; i < n_rows; i++) {
                    float value = distance[i * 4 + j];
                    best[i] = value < best[i] ? value : best[i];
                }
                int64_t next = c + j + 1;
                if (next == to || next == index->starts[segment + 1]) {
                    int shared = segment == s_first || segment == s_last;
                    for (int64_t i = 0; i < n_rows; i++)
                        lower(query[q + i].out + index->labels[segment], best[i], shared);
                    for (int i = 0; i < 4; i++) best[i] = INFINITY;
                    if (next == index->starts[segment + 1]) segment++;
                }
            }
        }
    }
}

/* The last segment whose first concept is not after `concept`. */
static int64_t NAME(segment_of)(const Index *index, int64_t concept)
{
    int64_t low = 0, high = index->n_segments - 1;
    while (low < high) {
        int64_t middle = (low + high + 1) / 2;
        if (index->starts[middle] <= concept) low = middle;
        else high = middle - 1;
    }
    return low;
}

/* Where the run of small labels that holds concept `at` of segment `s` ends, `last` at most. */
static int64_t NAME(small_until)(const Index *index, int64_t s, int64_t at, int64_t last)
{
    while (at < last && index->starts[s + 1] - index->starts[s] <= DIRECT) at = index->starts[++s];
    return at < last ? at : last;
}

/* Bounds of a block of concepts for some queries, then a look at each label's. */
TARGET static void NAME(filter)(const Index *index, const Query *query, int64_t n_queries,
                                const Span *span, int64_t s_first, int64_t s_last, float *bound)
{
    int32_t least[2][BLOCK];
    double best[2][BLOCK];
    for (int64_t q = 0; q < n_queries; q += QUERIES) {
        int64_t n_rows = n_queries - q < QUERIES ? n_queries - q : QUERIES;
        NAME(bounds)(index, query + q, n_rows, span->base, span->to, bound);
        NAME(start)(index, query + q, bound, span, least[0], best[0]);
        for (int64_t i = 0; i < n_rows; i++) {
            const Query *one = query + q + i;
            if (i + 1 < n_rows)
                NAME(start)(index, one + 1, bound + (i + 1) * BLOCK, span, least[(i + 1) % 2],
                            best[(i + 1) % 2]);
            for (int64_t segment = span->s; segment < span->s_end; segment++) {
                int64_t from = segment == span->s ? span->from : index->starts[segment];
                int64_t to = segment == span->s_end - 1 ? span->to : index->starts[segment + 1];
                NAME(look)(index, one, bound + i * BLOCK, span->base, from - span->base,
                           to - span->base, least[i % 2][segment - span->s],
                           best[i % 2][segment - span->s], one->out + index->labels[segment],
                           segment == s_first || segment == s_last);
            }
        }
    }
}

TARGET static void NAME(search)(const Index *index, const float *queries, int64_t n_queries,
                                int64_t first, int64_t last, float *out, int64_t n_labels,
                                char *work)
{
    int64_t width = groups(index->d) * 4;
    float *bound = (float *)(((uintptr_t)work + 63) & ~(uintptr_t)63);
    Query *query = (Query *)(bound + (QUERIES + 8) * BLOCK);
    int8_t *bytes = (int8_t *)(query + n_queries);
    for (int64_t i = 0; i < n_queries; i++)
        NAME(prepare)(index, queries + i * index->d, bytes + i * width, out + i * n_labels,
                      query + i);
    int64_t s = NAME(segment_of)(index, first), s_first = s;
    int64_t s_last = NAME(segment_of)(index, last - 1);
    for (int64_t at = first; at < last;) {
        while (index->starts[s + 1] <= at) s++;
        /* A run of small labels is measured as it is; a few of them are not worth a change. */
        int64_t end = NAME(small_until)(index, s, at, at + BLOCK < last ? at + BLOCK : last);
        if (end - at >= RUN) {
            NAME(direct)(index, query, n_queries, s, at, end, s_first, s_last);
            at = end;
            continue;
        }
        int64_t stop = at - at % STRIP + BLOCK < last ? at - at % STRIP + BLOCK : last;
        for (int64_t t = s + 1; t < index->n_segments && index->starts[t] + RUN <= stop; t++) {
            int64_t begin = index->starts[t];
            if (index->starts[t + 1] - begin <= DIRECT &&
                NAME(small_until)(index, t, begin, stop) - begin >= RUN)
                stop = begin;
        }
        Span span = {at - at % STRIP, at, stop, s, s + 1};
        while (span.s_end < index->n_segments && index->starts[span.s_end] < stop) span.s_end++;
        NAME(filter)(index, query, n_queries, &span, s_first, s_last, bound);
        at = stop;
    }
}
