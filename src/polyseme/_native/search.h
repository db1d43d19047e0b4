/* The search itself, written once and compiled for each instruction set. The includer defines
   NAME, TARGET, TOP and FEW_ONLY, and the parts `bounds`, `smallest` and `below` for one query,
   `tile`, `least` and `under` for queries side by side unless FEW_ONLY, `squared`,
   `squared_pairs` and `squared_many`. */

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
    parts->norm = sqrt(all[0]);
    parts->kept = sqrt(kept[0]);
    parts->rest = sqrt(rest[0]);
    parts->scale = step;
}

TARGET static void NAME(pack)(const float *points, const float *centre, int64_t n, int64_t d,
                              int64_t first, int64_t last, uint8_t *packed, float *terms)
{
    int64_t width = width_of(d), stride = n + LANES;
    for (int64_t concept = first; concept < last; concept++) {
        uint8_t *bytes = packed + concept * width;
        float *term = terms + concept;
        Parts parts = {0.0, 0.0, 0.0, 0.0f};
        memset(bytes, 0, (size_t)width);
        if (concept < n)
            NAME(quantise)(points + concept * d, centre, d, 127, (int8_t *)bytes, &parts);
        for (int64_t k = 0; k < width; k++) bytes[k] ^= 0x80; /* adds 128 */
        term[0] = concept < n ? (float)(parts.norm * parts.norm * (1.0 - SLACK * UNIT)) : INFINITY;
        term[stride] = 2.0f * parts.scale;
        term[2 * stride] = up(2.0 * parts.rest * (1.0 + 1e-9));
        term[3 * stride] = up(2.0 * parts.norm * (1.0 + 1e-9));
    }
}

TARGET static void NAME(prepare)(const Index *index, const float *raw, int8_t *bytes, float *out,
                                 Query *query)
{
    Parts parts;
    memset(bytes, 0, (size_t)padded(index->d));
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

/* Where the concepts of a span's i-th label begin and end, counted from the span's first. */
static inline int64_t NAME(begin)(const Index *index, const Span *span, int64_t i)
{
    return i ? index->starts[span->s + i] - span->from : 0;
}

static inline int64_t NAME(end)(const Index *index, const Span *span, int64_t i)
{
    int64_t to = span->s + i + 1 < span->s_end ? index->starts[span->s + i + 1] : span->to;
    return to - span->from;
}

/* Measure the pairs that wait, four at a time, and lower the best of their labels. */
TARGET static void NAME(measure)(const Index *index, const Query *query, const Span *span,
                                 Bench *bench)
{
    Pairs *pairs = &bench->pairs;
    int64_t n = pairs->n, d = index->d;
    const float *points = index->points + span->from * d;
    for (int64_t i = 0; i < n; i += 4) {
        float square[4];
        const float *x[4], *y[4];
        for (int64_t j = 0; j < 4; j++) {
            int64_t at = i + j < n ? i + j : i;
            x[j] = query[pairs->lane[at]].raw;
            y[j] = points + pairs->place[at] * d;
        }
        NAME(squared_pairs)(x, y, d, square);
        for (int64_t j = 0; j < 4 && i + j < n; j++) {
            double *best = bench->best + pairs->slot[i + j];
            double value = square[j];
            if (value < SMALL) value = squared_exactly(x[j], y[j], d);
            *best = value < *best ? value : *best;
        }
    }
    pairs->n = 0;
}

static inline void NAME(wait)(Pairs *pairs, int64_t place, int64_t lane, int64_t slot)
{
    pairs->place[pairs->n] = (int32_t)place;
    pairs->lane[pairs->n] = (int32_t)lane;
    pairs->slot[pairs->n++] = (int32_t)slot;
}

/* Look at the labels of a block for one query, whose bounds are there. Of a label of which
   nothing is known yet, the concept with the smallest bound is measured first: it sets a limit
   that leaves few others. */
TARGET static void NAME(look)(const Index *index, const Query *query, const Span *span,
                              Bench *bench)
{
    int64_t n_labels = span->s_end - span->s;
    const int64_t *labels = index->labels + span->s;
    float *bound = bench->bound, *before = bench->before;
    double *best = bench->best;
    Pairs *pairs = &bench->pairs;
    for (int64_t i = 0; i < n_labels; i++) {
        before[i] = held(query->out + labels[i]);
        best[i] = (double)before[i] * (double)before[i];
        if (before[i] < INFINITY) continue;
        int64_t least =
            NAME(smallest)(bound, NAME(begin)(index, span, i), NAME(end)(index, span, i));
        bound[least] = INFINITY;
        NAME(wait)(pairs, least, 0, i);
    }
    NAME(measure)(index, query, span, bench);
    for (int64_t i = 0; i < n_labels; i++) {
        int64_t n = NAME(below)(bound, NAME(begin)(index, span, i), NAME(end)(index, span, i),
                                limit_of(query->square, best[i]), pairs->place + pairs->n);
        for (; n; n--) NAME(wait)(pairs, pairs->place[pairs->n], 0, i);
    }
    NAME(measure)(index, query, span, bench);
    for (int64_t i = 0; i < n_labels; i++) {
        float distance = (float)sqrt(best[i]);
        int64_t s = span->s + i;
        if (distance < before[i])
            lower(query->out + labels[i], distance, s == span->first || s == span->last);
    }
}

#if !FEW_ONLY
/* Put queries side by side. `bytes` holds WIDE times the width of a concept. */
static void NAME(gather)(const Query *query, int64_t n, int64_t width, int8_t *bytes, Batch *batch)
{
    memset(bytes, 0, (size_t)(WIDE * width));
    batch->query = query;
    batch->bytes = bytes;
    batch->n = n;
    for (int64_t i = 0; i < WIDE; i++) {
        batch->offset[i] = i < n ? query[i].offset : 0;
        batch->scale[i] = i < n ? query[i].scale : 0.0f;
        batch->length[i] = i < n ? query[i].length : 0.0f;
        batch->rest[i] = i < n ? query[i].rest : 0.0f;
        batch->square[i] = i < n ? query[i].square : 0.0;
        for (int64_t k = 0; i < n && k < width; k += 4)
            memcpy(bytes + k * WIDE + 4 * i, query[i].bytes + k, 4);
    }
}

/* The same for queries side by side. */
TARGET static void NAME(look_many)(const Index *index, const Batch *batch, const Span *span,
                                   Bench *bench)
{
    int64_t n_labels = span->s_end - span->s, n = batch->n, wide = n > LANES ? WIDE : LANES;
    uint32_t real = n < 32 ? (1u << n) - 1 : 0xffffffffu;
    const int64_t *labels = index->labels + span->s;
    const Query *query = batch->query;
    Pairs *pairs = &bench->pairs;
    for (int64_t i = 0; i < n_labels; i++) {
        float *before = bench->before + i * WIDE;
        double *best = bench->best + i * WIDE;
        int unknown = 0;
        for (int64_t lane = 0; lane < n; lane++) {
            before[lane] = held(query[lane].out + labels[i]);
            unknown |= !(before[lane] < INFINITY);
        }
        for (int64_t lane = 0; lane < WIDE; lane++)
            best[lane] = (double)before[lane] * (double)before[lane];
        if (!unknown) continue;
        int64_t from = NAME(begin)(index, span, i), to = NAME(end)(index, span, i);
        int32_t least[WIDE];
        NAME(least)(bench->bound + from * WIDE, to - from, wide, least);
        if (pairs->n > PAIRS - WIDE) NAME(measure)(index, query, span, bench);
        for (int64_t lane = 0; lane < n; lane++) {
            if (before[lane] < INFINITY) continue;
            bench->bound[(from + least[lane]) * WIDE + lane] = INFINITY;
            NAME(wait)(pairs, from + least[lane], lane, i * WIDE + lane);
        }
    }
    NAME(measure)(index, query, span, bench);
    for (int64_t i = 0; i < n_labels; i++) {
        float limit[WIDE];
        int64_t to = NAME(end)(index, span, i);
        for (int64_t lane = 0; lane < WIDE; lane++)
            limit[lane] = limit_of(batch->square[lane], bench->best[i * WIDE + lane]);
        for (int64_t at = NAME(begin)(index, span, i); at < to; at++) {
            uint32_t found = NAME(under)(bench->bound + at * WIDE, limit, wide) & real;
            if (!found) continue;
            if (pairs->n > PAIRS - WIDE) NAME(measure)(index, query, span, bench);
            for (; found; found &= found - 1) {
                int64_t lane = __builtin_ctz(found);
                NAME(wait)(pairs, at, lane, i * WIDE + lane);
            }
        }
    }
    NAME(measure)(index, query, span, bench);
    for (int64_t i = 0; i < n_labels; i++) {
        int64_t s = span->s + i;
        int shared = s == span->first || s == span->last;
        float distance[WIDE];
        for (int64_t lane = 0; lane < WIDE; lane++)
            distance[lane] = (float)sqrt(bench->best[i * WIDE + lane]);
        for (int64_t lane = 0; lane < n; lane++)
            if (distance[lane] < bench->before[i * WIDE + lane])
                lower(query[lane].out + labels[i], distance[lane], shared);
    }
}
#endif

/* Measure every concept of a run of small labels. */
TARGET static void NAME(direct)(const Index *index, const Query *query, int64_t n_queries,
                                const Span *span)
{
    float square[4 * 4], distance[4 * 4];
    int64_t d = index->d, from = span->from, to = span->to;
    for (int64_t q = 0; q < n_queries; q += 4) {
        int64_t n_rows = n_queries - q < 4 ? n_queries - q : 4;
        int64_t segment = span->s;
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
                    int shared = segment == span->first || segment == span->last;
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

TARGET static void NAME(search)(const Index *index, const float *queries, int64_t n_queries,
                                int64_t first, int64_t last, float *out, int64_t n_labels,
                                char *work)
{
    int64_t d = index->d, n_batches = 0;
    Bench *bench = (Bench *)(((uintptr_t)work + 63) & ~(uintptr_t)63);
    Query *query = (Query *)(bench + 1);
    Batch *batch = (Batch *)(query + n_queries);
#if !FEW_ONLY
    n_batches = n_queries < MANY ? 0 : (n_queries + WIDE - 1) / WIDE;
#endif
    int8_t *bytes = (int8_t *)(batch + n_batches), *wide = bytes + n_queries * padded(d);
    for (int64_t i = 0; i < n_queries; i++)
        NAME(prepare)(index, queries + i * d, bytes + i * padded(d), out + i * n_labels, query + i);
#if !FEW_ONLY
    for (int64_t i = 0; i < n_batches; i++) {
        int64_t left = n_queries - i * WIDE;
        NAME(gather)(query + i * WIDE, left < WIDE ? left : WIDE, width_of(d),
                     wide + i * WIDE * width_of(d), batch + i);
    }
#endif
    (void)wide;
    bench->pairs.n = 0;
    Span span = {first, first, NAME(segment_of)(index, first), 0, 0, 0};
    span.first = span.s;
    span.last = NAME(segment_of)(index, last - 1);
    for (; span.from < last; span.from = span.to) {
        while (index->starts[span.s + 1] <= span.from) span.s++;
        span.to = span.from + BLOCK < last ? span.from + BLOCK : last;
        /* A run of small labels is measured as it is; a few of them are not worth a change. */
        int64_t end = NAME(small_until)(index, span.s, span.from, span.to);
        if (end - span.from >= RUN) {
            span.to = end;
            NAME(direct)(index, query, n_queries, &span);
            continue;
        }
        for (int64_t t = span.s + 1; t < index->n_segments && index->starts[t] + RUN <= span.to;
             t++) {
            int64_t begin = index->starts[t];
            if (index->starts[t + 1] - begin <= DIRECT &&
                NAME(small_until)(index, t, begin, span.to) - begin >= RUN)
                span.to = begin;
        }
        span.s_end = span.s + 1;
        while (span.s_end < index->n_segments && index->starts[span.s_end] < span.to) span.s_end++;
        /* A label that would be cut is better begun with the next block, unless it is long. */
        int64_t begun = index->starts[span.s_end - 1];
        if (index->starts[span.s_end] > span.to && begun > span.from + BLOCK / 2) {
            span.to = begun;
            span.s_end--;
        }
#if !FEW_ONLY
        for (int64_t i = 0; i < n_batches; i++) {
            NAME(tile)(index, batch + i, &span, bench->bound);
            NAME(look_many)(index, batch + i, &span, bench);
        }
#endif
        for (int64_t i = 0; !n_batches && i < n_queries; i++) {
            NAME(bounds)(index, query + i, &span, bench->bound);
            NAME(look)(index, query + i, &span, bench);
        }
    }
}
