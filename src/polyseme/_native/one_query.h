/* Bounds of concepts for one query, for processors with AVX2 or more. The includer defines NAME,
   TARGET and ADD(sum, concept, query), which adds products of 32 bytes, four neighbours each.
   Wider loads, which mostly lie across two cache lines, would wait longer. */

/* Sums of products of one concept, eight parts left to add; bytes are read as they lie. */
TARGET static inline __m256i NAME(row)(const uint8_t *packed, const int8_t *bytes, int64_t d)
{
    __m256i sum = _mm256_setzero_si256();
    for (int64_t k = 0; k < d; k += 32) {
        __builtin_prefetch(packed + AHEAD + k);
        ADD(sum, _mm256_loadu_si256((const __m256i *)(packed + k)),
            _mm256_loadu_si256((const __m256i *)(bytes + k)))
    }
    return sum;
}

/* The same of four concepts in a row, two halves of each left to add. */
TARGET static inline __m256i NAME(four)(const uint8_t *packed, int64_t width, const int8_t *bytes,
                                        int64_t d)
{
    __m256i ab = _mm256_hadd_epi32(NAME(row)(packed, bytes, d), NAME(row)(packed + width, bytes, d));
    __m256i cd = _mm256_hadd_epi32(NAME(row)(packed + 2 * width, bytes, d),
                                   NAME(row)(packed + 3 * width, bytes, d));
    return _mm256_hadd_epi32(ab, cd);
}

/* Bounds of a span's concepts for one query, and of some that follow. */
TARGET static void NAME(bounds)(const Index *index, const Query *query, const Span *span,
                                float *bound)
{
    int64_t d = index->d, width = width_of(d), stride = stride_of(index);
    __m256 scale = _mm256_set1_ps(query->scale), length = _mm256_set1_ps(query->length);
    __m256 rest = _mm256_set1_ps(query->rest);
    for (int64_t at = span->from; at < span->to; at += 8) {
        const uint8_t *packed = index->packed + at * width;
        const float *term = index->terms + at;
        __m256i low = NAME(four)(packed, width, query->bytes, d);
        __m256i high = NAME(four)(packed + 4 * width, width, query->bytes, d);
        __m256i sum = _mm256_add_epi32(_mm256_permute2x128_si256(low, high, 0x20),
                                       _mm256_permute2x128_si256(low, high, 0x31));
        sum = _mm256_add_epi32(sum, _mm256_set1_epi32(query->offset));
        __m256 product = _mm256_mul_ps(_mm256_cvtepi32_ps(sum), _mm256_loadu_ps(term + stride));
        __m256 value = _mm256_fnmadd_ps(product, scale, _mm256_loadu_ps(term));
        value = _mm256_fnmadd_ps(_mm256_loadu_ps(term + 2 * stride), length, value);
        value = _mm256_fnmadd_ps(_mm256_loadu_ps(term + 3 * stride), rest, value);
        _mm256_storeu_ps(bound + at - span->from, value);
    }
}
