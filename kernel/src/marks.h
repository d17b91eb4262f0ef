/* Marks of the characters that structure JSON text: a bit for each of 64 bytes, the lowest for the first. */
#ifndef TOPICS_MARKS_H
#define TOPICS_MARKS_H

#include "kernel.h"

#if defined(__x86_64__) && !defined(KERNEL_PORTABLE)
#define HAS_AVX2 1
#include <immintrin.h>
#endif

/* So that the code of a caller for some machines is made of what it calls. */
#define INLINE __attribute__((always_inline)) static inline

enum { BLOCK = 64 };

typedef struct {
    uint64_t quotes, backslashes, colons, opening, closing;
} Marks;

/* The marks of 64 bytes. */
typedef Marks MarksOf(const uint8_t *at);

#if defined(HAS_AVX2)
static inline uint64_t equal_16(__m128i bytes, __m128i wanted)
{
    return (uint64_t)(unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, wanted));
}

/* Written out, as loops of constant length are not unrolled everywhere. */
static inline uint64_t equal_64(const __m128i bytes[4], char each)
{
    __m128i wanted = _mm_set1_epi8(each);
    return (equal_16(bytes[0], wanted) | equal_16(bytes[1], wanted) << 16)
           | (equal_16(bytes[2], wanted) << 32 | equal_16(bytes[3], wanted) << 48);
}

static inline Marks marks_plain(const uint8_t *at)
{
    const __m128i *from = (const __m128i *)(const void *)at, bit = _mm_set1_epi8(0x20);
    const __m128i bytes[4] = {_mm_loadu_si128(from), _mm_loadu_si128(from + 1), _mm_loadu_si128(from + 2), _mm_loadu_si128(from + 3)};
    /* The only bytes that become braces are braces and brackets. */
    const __m128i braces[4] = {
        _mm_or_si128(bytes[0], bit), _mm_or_si128(bytes[1], bit), _mm_or_si128(bytes[2], bit), _mm_or_si128(bytes[3], bit)};
    Marks marks = {equal_64(bytes, '"'), equal_64(bytes, '\\'), equal_64(bytes, ':'), equal_64(braces, '{'), equal_64(braces, '}')};
    return marks;
}

__attribute__((target("avx2"))) static inline uint64_t equal_avx2(__m256i low, __m256i high, char each)
{
    __m256i wanted = _mm256_set1_epi8(each);
    uint64_t upper = (unsigned)_mm256_movemask_epi8(_mm256_cmpeq_epi8(high, wanted));
    return upper << 32 | (unsigned)_mm256_movemask_epi8(_mm256_cmpeq_epi8(low, wanted));
}

__attribute__((target("avx2"))) static inline Marks marks_avx2(const uint8_t *at)
{
    const __m256i *from = (const __m256i *)(const void *)at, bit = _mm256_set1_epi8(0x20);
    __m256i low = _mm256_loadu_si256(from), high = _mm256_loadu_si256(from + 1);
    __m256i low_braces = _mm256_or_si256(low, bit), high_braces = _mm256_or_si256(high, bit);
    Marks marks = {equal_avx2(low, high, '"'), equal_avx2(low, high, '\\'), equal_avx2(low, high, ':'),
                   equal_avx2(low_braces, high_braces, '{'), equal_avx2(low_braces, high_braces, '}')};
    return marks;
}
#else
/* A bit for each of the eight bytes that are this one. No byte carries into the next, so that all are right. */
static inline uint64_t equal_8(uint64_t bytes, uint8_t wanted)
{
    const uint64_t lows = 0x7F7F7F7F7F7F7F7FULL;
    uint64_t other = bytes ^ (0x0101010101010101ULL * wanted);
    uint64_t equal = ~(((other & lows) + lows) | other | lows);
    return (equal >> 7) * 0x0102040810204080ULL >> 56;
}

static inline Marks marks_plain(const uint8_t *at)
{
    Marks marks = {0, 0, 0, 0, 0};
    for (int part = 0; part < BLOCK; part += 8) {
        uint64_t bytes = load64(at + part), braces = bytes | 0x2020202020202020ULL;
        marks.quotes |= equal_8(bytes, '"') << part;
        marks.backslashes |= equal_8(bytes, '\\') << part;
        marks.colons |= equal_8(bytes, ':') << part;
        marks.opening |= equal_8(braces, '{') << part;
        marks.closing |= equal_8(braces, '}') << part;
    }
    return marks;
}
#endif

/* Of the bytes from `at` to `end`, at most 64. Those before `readable` may be read. */
INLINE Marks marks_of(const uint8_t *at, const uint8_t *end, const uint8_t *readable, MarksOf *marks_of_64)
{
    size_t left = (size_t)(end - at);
    uint8_t copy[BLOCK];
    if (left < BLOCK && readable - at < BLOCK) {
        memset(copy, 0, sizeof copy);
        memcpy(copy, at, left);
        at = copy;
    }
    Marks marks = marks_of_64(at);
    if (left >= BLOCK) return marks;
    uint64_t within = ((uint64_t)1 << left) - 1;
    marks.quotes &= within;
    marks.backslashes &= within;
    marks.colons &= within;
    marks.opening &= within;
    marks.closing &= within;
    return marks;
}

/* The bytes behind a backslash that is not itself behind one. `carried`: the byte before, and then the last one, is
 * such a backslash. */
static inline uint64_t escaped_by(uint64_t backslashes, bool *carried)
{
    uint64_t escaped = *carried;
    *carried = false;
    for (backslashes &= ~escaped; backslashes; backslashes &= backslashes - 1) {
        uint64_t lowest = backslashes & -backslashes;
        *carried = lowest >> 63;
        escaped |= lowest << 1;
        backslashes &= ~(lowest << 1);
    }
    return escaped;
}

/* Each bit is whether the number of set bits up to it, itself included, is odd. */
static inline uint64_t odd_up_to(uint64_t bits)
{
    bits ^= bits << 1;
    bits ^= bits << 2;
    bits ^= bits << 4;
    bits ^= bits << 8;
    bits ^= bits << 16;
    bits ^= bits << 32;
    return bits;
}

#endif
