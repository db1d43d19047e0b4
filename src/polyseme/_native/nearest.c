/* Nearest concept of each label, exactly: an 8-bit filter with true bounds, then float distances.

   Concepts lie sorted by label. Relative to a common centre each is kept as bytes with a scale of
   its own, so that concept = scale * bytes + rest, and likewise each query. With "^" for the
   quantised part and e for the length of the rest,

       |q - c|^2 - |q|^2 = |c|^2 - 2 q.c >= |c|^2 - 2 q^.c^ - 2 |q^| e_c - 2 e_q |c|.

   The whole-number product q^.c^ is exact; what float arithmetic can lose on the right-hand side
   is subtracted beforehand (SLACK). A concept whose bound lies above the best distance so far
   cannot be nearer and is left out; every other one is measured from its differences.

   A few queries are taken one by one, with concepts side by side in a vector: the time goes into
   reading concepts. Many are laid side by side themselves, so that smallest bounds and comparisons
   with limits need no steps across a vector; pairs to be measured wait until there are several.

   No Python header, no global state: the library is loaded with ctypes, and calls may run in as
   many threads as one likes. Only the first and last label of a call's concepts may be shared
   with another call; those are written by compare-and-swap. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "written for processors with the low byte first"
#endif
#if defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ == 2
#error "written for processors that round after each operation"
#endif
#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

#define LANES 16      /* queries, or concepts, that are looked at together */
#define WIDE 32       /* queries of a tile; a multiple of LANES */
#define BLOCK 252     /* concepts whose bounds are held at once; a multiple of what tiles take */
#define MANY 6        /* from so many queries on, these lie side by side, not the concepts */
#define AHEAD 16384    /* bytes of concepts that are fetched beforehand for one query */
#define PAIRS 1024    /* pairs of query and concept that wait to be measured */
#define SLACK 128.0   /* in units of the rounding error of float, 2^-24 */
#define UNIT 5.9604644775390625e-8
#define TINY 1e-36    /* absolute slack, where squares leave the range of normal floats */
#define SMALL 1e-25f  /* squares below are measured again in double precision */
#define DIRECT 8      /* up to so many concepts of a label are measured without a filter */
#define RUN 32        /* if at least so many concepts of such labels follow each other */

typedef struct {
    const float *points;     /* (n, d) */
    const uint8_t *packed;   /* (n + LANES, width): value + 128; 64 bytes more can be read */
    const float *terms;      /* (4, n + LANES): |c|^2 - slack, 2 scale, 2 e, 2 |c| */
    const float *centre;     /* (d,) */
    const int64_t *starts;   /* (n_segments + 1,): the first concept of each label with any */
    const int64_t *labels;   /* (n_segments,) */
    int64_t n, d, n_segments;
} Index;

typedef struct {
    const float *raw;        /* (d,): as given */
    const int8_t *bytes;     /* d, filled up with zeros to a multiple of 64 */
    float *out;              /* distances by label */
    int32_t offset;          /* -128 times the sum of the bytes */
    float scale, length, rest;
    double square;           /* |q|^2 relative to the centre, less its slack */
} Query;

/* Up to WIDE queries side by side. */
typedef struct {
    const Query *query;
    const int8_t *bytes;     /* per 4 components: 4 bytes of each query */
    int64_t n;
    int32_t offset[WIDE];
    float scale[WIDE], length[WIDE], rest[WIDE];
    double square[WIDE];
} Batch;

/* Concepts [from, to), and their labels' segments [s, s_end); other threads may have concepts of
   the segments `first` and `last`. */
typedef struct {
    int64_t from, to, s, s_end, first, last;
} Span;

/* Pairs that wait to be measured: the concept's place, the query's, and where the best is held. */
typedef struct {
    int64_t n;
    int32_t place[PAIRS], lane[PAIRS], slot[PAIRS];
} Pairs;

/* What a search works with. */
typedef struct {
    float bound[(BLOCK + LANES) * WIDE]; /* (concepts, WIDE), or (concepts,) for one query */
    double best[BLOCK * WIDE];           /* smallest squares by label and query */
    float before[BLOCK * WIDE];          /* the same as distances, when a block began */
    Pairs pairs;
} Bench;

/* A float that is certainly not below the number, which is within the range of normal floats. */
static inline float up(double value) { return (float)(value + fabs(value) * (2.0 * UNIT)); }

/* Bytes of a packed concept, and of a query, which is read 32 bytes at a time. */
static inline int64_t width_of(int64_t d) { return (d + 3) / 4 * 4; }
static inline int64_t padded(int64_t d) { return (d + 63) / 64 * 64; }
static inline int64_t stride_of(const Index *index) { return index->n + LANES; }

/* ------------------------------------------------------------------ quantisation */

/* What quantising a point leaves: |x|, |x^|, |x - x^| and the scale. */
typedef struct {
    double norm, kept, rest;
    float scale;
} Parts;

/* The bound above which no concept can be nearer, given |q|^2 and the best square so far. */
static inline float limit_of(double square, double squared)
{
    return up(squared * (1.0 + 8.0 * UNIT) - square + TINY);
}

static double squared_exactly(const float *x, const float *y, int64_t d)
{
    double sum = 0.0;
    for (int64_t k = 0; k < d; k++) {
        double gap = (double)x[k] - (double)y[k];
        sum += gap * gap;
    }
    return sum;
}

/* Lower the distance at `place`; `shared` where other threads may do the same. */
static inline void lower(float *place, float distance, int shared)
{
    if (!shared) {
        if (distance < *place) *place = distance;
        return;
    }
    /* Distances are not negative, so their bits are ordered as they are. */
    uint32_t fresh, old;
    memcpy(&fresh, &distance, 4);
    old = __atomic_load_n((uint32_t *)place, __ATOMIC_RELAXED);
    while (fresh < old && !__atomic_compare_exchange_n((uint32_t *)place, &old, fresh, 1,
                                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

static inline float held(const float *place)
{
    uint32_t bits = __atomic_load_n((const uint32_t *)place, __ATOMIC_RELAXED);
    float distance;
    memcpy(&distance, &bits, 4);
    return distance;
}

/* ------------------------------------------------------------------ three ways to compute */

#define NAME(name) name##_generic
#define TARGET
#define TOP 127
#define FEW_ONLY 1
#include "generic.h"
#include "search.h"
#undef NAME
#undef TARGET
#undef TOP
#undef FEW_ONLY

#if (defined(__x86_64__) || defined(__amd64__)) && defined(__GNUC__)
#define X86 1
#include <immintrin.h>

#define NAME(name) name##_avx2
#define TARGET __attribute__((target("avx2,fma")))
#define TOP 63 /* so that two products of a byte fit 16 bits with their sign */
#define FEW_ONLY 0
#include "avx2.h"
#include "search.h"
#undef NAME
#undef TARGET
#undef TOP
#undef FEW_ONLY

#define NAME(name) name##_vnni
#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma")))
#define TOP 127
#define FEW_ONLY 0
#include "vnni.h"
#include "search.h"
#undef NAME
#undef TARGET
#undef TOP
#undef FEW_ONLY
#endif

/* The fastest way this processor knows: 0 plain C, 1 AVX2, 2 AVX-512 with VNNI. */
EXPORT int polyseme_level(void)
{
#ifdef X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vnni"))
        return 2;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return 1;
#endif
    return 0;
}

/* Fill `packed` and `terms` for the concepts [first, last); places from n on, LANES of them, are
   filled with concepts that are infinitely far. */
EXPORT void polyseme_pack(int level, const float *points, const float *centre, int64_t n,
                          int64_t d, int64_t first, int64_t last, uint8_t *packed, float *terms)
{
#ifdef X86
    if (level == 2) {
        pack_vnni(points, centre, n, d, first, last, packed, terms);
        return;
    }
    if (level == 1) {
        pack_avx2(points, centre, n, d, first, last, packed, terms);
        return;
    }
#endif
    (void)level;
    pack_generic(points, centre, n, d, first, last, packed, terms);
}

/* Bytes of workspace that `polyseme_nearest` needs for so many queries at once. */
EXPORT int64_t polyseme_workspace(int64_t d, int64_t n_queries)
{
    int64_t side_by_side = (n_queries + WIDE - 1) / WIDE * (int64_t)sizeof(Batch) +
                           (n_queries + WIDE - 1) / WIDE * WIDE * width_of(d);
    return (int64_t)sizeof(Bench) + n_queries * ((int64_t)sizeof(Query) + padded(d)) +
           side_by_side + 256;
}

/* Lower out[query, label] to the distance of the nearest of the concepts [first, last), for all
   queries; `out` starts at infinity. `work` has `polyseme_workspace` bytes. */
EXPORT void polyseme_nearest(int level, const float *points, const uint8_t *packed,
                             const float *terms, const float *centre, const int64_t *starts,
                             const int64_t *labels, int64_t n, int64_t d, int64_t n_segments,
                             const float *queries, int64_t n_queries, int64_t first, int64_t last,
                             float *out, int64_t n_labels, char *work)
{
    Index index = {points, packed, terms, centre, starts, labels, n, d, n_segments};
    if (n_queries < 1 || first >= last) return;
#ifdef X86
    if (level == 2) {
        search_vnni(&index, queries, n_queries, first, last, out, n_labels, work);
        return;
    }
    if (level == 1) {
        search_avx2(&index, queries, n_queries, first, last, out, n_labels, work);
        return;
    }
#endif
    (void)level;
    search_generic(&index, queries, n_queries, first, last, out, n_labels, work);
}
