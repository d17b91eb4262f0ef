/* XXH3, 64 bits, seed 0, default secret: written from the specification of XXH3 (doc/xxhash_spec.md of xxHash 0.8).
 *
 *   length     way
 *   0          a constant
 *   1..3       three bytes and the length in 32 bits, mixed once
 *   4..8       two words of 32 bits, which may overlap
 *   9..16      two words of 64 bits, which may overlap
 *   17..128    pairs of 16 bytes from both ends, which may overlap
 *   129..240   16 bytes a round; from the ninth on with the secret moved by 3 bytes
 *   241..      stripes of 64 bytes into eight accumulators, stirred after each block of 16 stripes
 */
#include "kernel.h"

/* KERNEL_PORTABLE leaves out code for some machines only, to test the code for the others. */
#if defined(__x86_64__) && !defined(KERNEL_PORTABLE)
#define HAS_AVX2 1
#include <immintrin.h>
#endif

static const uint64_t PRIME32_1 = 0x9E3779B1U, PRIME32_2 = 0x85EBCA77U, PRIME32_3 = 0xC2B2AE3DU;
static const uint64_t PRIME64_1 = 0x9E3779B185EBCA87ULL, PRIME64_2 = 0xC2B2AE3D27D4EB4FULL;
static const uint64_t PRIME64_3 = 0x165667B19E3779F9ULL, PRIME64_4 = 0x85EBCA77C2B2AE63ULL;
static const uint64_t PRIME64_5 = 0x27D4EB2F165667C5ULL;
static const uint64_t PRIME_MX1 = 0x165667919E3779F9ULL, PRIME_MX2 = 0x9FB21C651E98DF25ULL;

enum { SECRET_SIZE = 192, STRIPE = 64, STRIPES_A_BLOCK = (SECRET_SIZE - STRIPE) / 8, SHORT = 240 };

static const uint8_t SECRET[SECRET_SIZE] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};

/* The two halves of a product of 128 bits, one folded onto the other. */
static inline uint64_t multiply_fold(uint64_t left, uint64_t right)
{
#if defined(__SIZEOF_INT128__) && !defined(KERNEL_PORTABLE)
    __extension__ typedef unsigned __int128 u128;
    u128 product = (u128)left * right;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
#else
    uint64_t low = (left & 0xFFFFFFFF) * (right & 0xFFFFFFFF);
    uint64_t cross = (left >> 32) * (right & 0xFFFFFFFF) + (low >> 32);
    uint64_t other = (left & 0xFFFFFFFF) * (right >> 32) + (cross & 0xFFFFFFFF);
    uint64_t high = (left >> 32) * (right >> 32) + (cross >> 32) + (other >> 32);
    return (other << 32 | (low & 0xFFFFFFFF)) ^ high;
#endif
}

static inline uint64_t rotate_left(uint64_t value, int bits) { return value << bits | value >> (64 - bits); }

static inline uint64_t avalanche(uint64_t hash)
{
    hash ^= hash >> 37;
    hash *= PRIME_MX1;
    return hash ^ hash >> 32;
}

/* The final mix of XXH64, used for the shortest inputs. */
static inline uint64_t avalanche_64(uint64_t hash)
{
    hash ^= hash >> 33;
    hash *= PRIME64_2;
    hash ^= hash >> 29;
    hash *= PRIME64_3;
    return hash ^ hash >> 32;
}

static inline uint64_t mix16(const uint8_t *input, const uint8_t *secret)
{
    return multiply_fold(load64(input) ^ load64(secret), load64(input + 8) ^ load64(secret + 8));
}

static uint64_t hash_16(const uint8_t *input, size_t size)
{
    if (size > 8) {
        uint64_t low = load64(input) ^ load64(SECRET + 24) ^ load64(SECRET + 32);
        uint64_t high = load64(input + size - 8) ^ load64(SECRET + 40) ^ load64(SECRET + 48);
        return avalanche(size + __builtin_bswap64(low) + high + multiply_fold(low, high));
    }
    if (size >= 4) {
        uint64_t word = load32(input + size - 4) + ((uint64_t)load32(input) << 32);
        uint64_t hash = word ^ load64(SECRET + 8) ^ load64(SECRET + 16);
        hash ^= rotate_left(hash, 49) ^ rotate_left(hash, 24);
        hash *= PRIME_MX2;
        hash ^= (hash >> 35) + size;
        hash *= PRIME_MX2;
        return hash ^ hash >> 28;
    }
    if (size) {
        uint32_t word = (uint32_t)input[0] << 16 | (uint32_t)input[size >> 1] << 24 | input[size - 1] | (uint32_t)size << 8;
        return avalanche_64(word ^ (uint64_t)(load32(SECRET) ^ load32(SECRET + 4)));
    }
    return avalanche_64(load64(SECRET + 56) ^ load64(SECRET + 64));
}

static uint64_t hash_240(const uint8_t *input, size_t size)
{
    uint64_t sum = size * PRIME64_1;
    if (size <= 128) {
        size_t pairs = (size - 1) / 32 + 1;
        for (size_t pair = pairs; pair-- > 0;) {
            sum += mix16(input + 16 * pair, SECRET + 32 * pair);
            sum += mix16(input + size - 16 * (pair + 1), SECRET + 32 * pair + 16);
        }
        return avalanche(sum);
    }
    for (size_t round = 0; round < 8; round++) sum += mix16(input + 16 * round, SECRET + 16 * round);
    sum = avalanche(sum);
    for (size_t round = 8; round < size / 16; round++) sum += mix16(input + 16 * round, SECRET + 16 * (round - 8) + 3);
    return avalanche(sum + mix16(input + size - 16, SECRET + 136 - 17));
}

/* Stripes, each with the secret 8 bytes further on, into the accumulators:
 * sums[i] += low32(key) * high32(key), sums[i ^ 1] += value. */
typedef void Accumulate(uint64_t sums[8], const uint8_t *input, const uint8_t *secret, size_t stripes);

static void accumulate_plain(uint64_t sums[8], const uint8_t *input, const uint8_t *secret, size_t stripes)
{
    for (; stripes; stripes--, input += STRIPE, secret += 8) {
        for (int lane = 0; lane < 8; lane++) {
            uint64_t value = load64(input + 8 * lane), key = value ^ load64(secret + 8 * lane);
            sums[lane ^ 1] += value;
            sums[lane] += (key & 0xFFFFFFFF) * (key >> 32);
        }
    }
}

#if defined(HAS_AVX2)
/* The same with four accumulators a register: this is where the time of large inputs goes. */
__attribute__((target("avx2"))) static void accumulate_avx2(uint64_t sums[8], const uint8_t *input, const uint8_t *secret, size_t stripes)
{
    __m256i halves[2] = {_mm256_loadu_si256((const __m256i *)(const void *)sums), _mm256_loadu_si256((const __m256i *)(const void *)(sums + 4))};
    for (; stripes; stripes--, input += STRIPE, secret += 8) {
        for (int half = 0; half < 2; half++) {
            __m256i value = _mm256_loadu_si256((const __m256i *)(const void *)(input + 32 * half));
            __m256i key = _mm256_xor_si256(value, _mm256_loadu_si256((const __m256i *)(const void *)(secret + 32 * half)));
            __m256i product = _mm256_mul_epu32(key, _mm256_srli_epi64(key, 32));
            __m256i swapped = _mm256_shuffle_epi32(value, _MM_SHUFFLE(1, 0, 3, 2));
            halves[half] = _mm256_add_epi64(halves[half], _mm256_add_epi64(product, swapped));
        }
    }
    _mm256_storeu_si256((__m256i *)(void *)sums, halves[0]);
    _mm256_storeu_si256((__m256i *)(void *)(sums + 4), halves[1]);
}
#endif

static Accumulate *accumulate = accumulate_plain;

void xxh3_prepare(void)
{
#if defined(HAS_AVX2)
    if (__builtin_cpu_supports("avx2")) accumulate = accumulate_avx2;
#endif
}

static void stir(uint64_t sums[8], const uint8_t *secret)
{
    for (int lane = 0; lane < 8; lane++) {
        sums[lane] ^= sums[lane] >> 47;
        sums[lane] ^= load64(secret + 8 * lane);
        sums[lane] *= PRIME32_1;
    }
}

/* More than 240 bytes. The first stripe is read from `first`, where another byte may stand in front. */
static uint64_t hash_long(const uint8_t *first, const uint8_t *input, size_t size)
{
    uint64_t sums[8] = {PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1};
    size_t stripes = (size - 1) / STRIPE; /* whole stripes before the last, which always ends with the input */
    accumulate(sums, first, SECRET, 1);
    for (size_t stripe = 1, in_block = 1; stripe < stripes;) {
        size_t some = stripes - stripe < STRIPES_A_BLOCK - in_block ? stripes - stripe : STRIPES_A_BLOCK - in_block;
        accumulate(sums, input + STRIPE * stripe, SECRET + 8 * in_block, some);
        stripe += some;
        in_block += some;
        if (in_block == STRIPES_A_BLOCK) {
            stir(sums, SECRET + SECRET_SIZE - STRIPE);
            in_block = 0;
        }
    }
    accumulate(sums, input + size - STRIPE, SECRET + SECRET_SIZE - STRIPE - 7, 1);
    uint64_t hash = size * PRIME64_1;
    for (int pair = 0; pair < 4; pair++) {
        const uint8_t *secret = SECRET + 11 + 16 * pair;
        hash += multiply_fold(sums[2 * pair] ^ load64(secret), sums[2 * pair + 1] ^ load64(secret + 8));
    }
    return avalanche(hash);
}

uint64_t xxh3_64(const uint8_t *input, size_t size)
{
    if (size <= 16) return hash_16(input, size);
    return size <= SHORT ? hash_240(input, size) : hash_long(input, input, size);
}

uint64_t xxh3_64_first(const uint8_t *input, size_t size, uint8_t first)
{
    uint8_t copy[SHORT];
    if (size > SHORT) {
        memcpy(copy, input, STRIPE); /* of a constant size, which needs no call */
        copy[0] = first;
        return hash_long(copy, input, size);
    }
    memcpy(copy, input, size);
    copy[0] = first;
    return xxh3_64(copy, size);
}
