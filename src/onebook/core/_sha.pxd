"""SHA-256 of a short text, with the instructions that processors have for it.

OpenSSL uses the same ones, but behind two contexts that `hashlib` makes and frees for each digest:
for a hundred bytes that takes five times as long as the digest. Where the processor or the
compiler is another, `sha_instructions()` is false and the caller asks `hashlib`. FIPS 180-4.
"""

from libc.stdint cimport uint8_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #if defined(__x86_64__) && defined(__GNUC__)
    #include <cpuid.h>
    #include <immintrin.h>

    static int sha_instructions(void) {
        unsigned int a, b, c, d;
        return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSE4_1)
            && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & (1u << 29));
    }

    static const uint32_t sha_round[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
        0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
        0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
        0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
        0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
        0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
        0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
        0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
        0xc67178f2};

    /* The instructions keep a, b, e, f in one register and c, d, g, h in the other. */
    __attribute__((target("sha,sse4.1")))
    static void sha_text(const uint8_t *text, size_t length, uint8_t *digest) {  /* up to 247 */
        const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0bll, 0x0405060700010203ll);
        const __m128i turn = _mm_set_epi64x(0x0001020304050607ll, 0x08090a0b0c0d0e0fll);
        __m128i abef = _mm_set_epi32(0x6a09e667, 0xbb67ae85, 0x510e527f, 0x9b05688c);
        __m128i cdgh = _mm_set_epi32(0x3c6ef372, 0xa54ff53a, 0x1f83d9ab, 0x5be0cd19);
        uint8_t padded[256] = {0};
        size_t end = (length + 9 + 63) / 64 * 64, at;
        uint64_t bits = __builtin_bswap64((uint64_t)length * 8);
        memcpy(padded, text, length);
        padded[length] = 0x80;
        memcpy(padded + end - 8, &bits, 8);
        for (at = 0; at < end; at += 64) {
            __m128i words[4], abef_before = abef, cdgh_before = cdgh, sum;
            int i;
            for (i = 0; i < 4; i++)
                words[i] = _mm_shuffle_epi8(
                    _mm_loadu_si128((const __m128i *)(padded + at + 16 * i)), swap);
            for (i = 0; i < 16; i++) {
                __m128i w = words[i & 3], last = words[(i + 3) & 3];
                sum = _mm_add_epi32(w, _mm_loadu_si128((const __m128i *)(sha_round + 4 * i)));
                cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
                abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
                w = _mm_add_epi32(_mm_sha256msg1_epu32(w, words[(i + 1) & 3]),
                                  _mm_alignr_epi8(last, words[(i + 2) & 3], 4));
                words[i & 3] = _mm_sha256msg2_epu32(w, last);
            }
            abef = _mm_add_epi32(abef, abef_before);
            cdgh = _mm_add_epi32(cdgh, cdgh_before);
        }
        _mm_storeu_si128((__m128i *)digest, _mm_shuffle_epi8(
            _mm_unpackhi_epi64(cdgh, abef), turn));
        _mm_storeu_si128((__m128i *)(digest + 16), _mm_shuffle_epi8(
            _mm_unpacklo_epi64(cdgh, abef), turn));
    }
    #else
    static int sha_instructions(void) { return 0; }
    static void sha_text(const uint8_t *text, size_t length, uint8_t *digest) {}
    #endif
    """
    bint sha_instructions() nogil
    void sha_text(const uint8_t *text, size_t length, uint8_t *digest) nogil
