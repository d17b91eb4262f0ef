/* Text: numbers in digits, Base64, JSON strings, UTF-8, and the search for a key. */
#include "kernel.h"

void out_decimal(Out *out, uint64_t number)
{
    uint8_t digits[20];
    size_t at = sizeof digits;
    do {
        digits[--at] = (uint8_t)('0' + number % 10);
        number /= 10;
    } while (number);
    out_bytes(out, digits + at, sizeof digits - at);
}

void out_hex16(Out *out, uint64_t number)
{
    uint8_t digits[16];
    for (int at = 15; at >= 0; at--, number >>= 4) digits[at] = (uint8_t)"0123456789abcdef"[number & 15];
    out_bytes(out, digits, sizeof digits);
}

void out_base64(Out *out, Piece piece)
{
    static const char DIGITS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    if (!out_room(out, (piece.size + 2) / 3 * 4)) return;
    const uint8_t *from = piece.at;
    size_t left = piece.size;
    for (; left >= 3; from += 3, left -= 3) {
        uint32_t word = (uint32_t)from[0] << 16 | (uint32_t)from[1] << 8 | from[2];
        *out->at++ = (uint8_t)DIGITS[word >> 18];
        *out->at++ = (uint8_t)DIGITS[word >> 12 & 63];
        *out->at++ = (uint8_t)DIGITS[word >> 6 & 63];
        *out->at++ = (uint8_t)DIGITS[word & 63];
    }
    if (left) {
        uint32_t word = (uint32_t)from[0] << 16 | (left == 2 ? (uint32_t)from[1] << 8 : 0);
        *out->at++ = (uint8_t)DIGITS[word >> 18];
        *out->at++ = (uint8_t)DIGITS[word >> 12 & 63];
        *out->at++ = left == 2 ? (uint8_t)DIGITS[word >> 6 & 63] : '=';
        *out->at++ = '=';
    }
}

static void out_escaped(Out *out, uint8_t byte)
{
    out_byte(out, '\\');
    switch (byte) {
    case '"': case '\\': out_byte(out, byte); return;
    case '\b': out_byte(out, 'b'); return;
    case '\f': out_byte(out, 'f'); return;
    case '\n': out_byte(out, 'n'); return;
    case '\r': out_byte(out, 'r'); return;
    case '\t': out_byte(out, 't'); return;
    default:
        out_text(out, "u00");
        out_byte(out, (uint8_t)"0123456789abcdef"[byte >> 4]);
        out_byte(out, (uint8_t)"0123456789abcdef"[byte & 15]);
    }
}

bool out_quoted(Out *out, Piece text)
{
    out_byte(out, '"');
    for (size_t at = 0; at < text.size;) {
        uint8_t byte = text.at[at];
        size_t width = 1;
        if (byte >= 0x80) {
            width = utf8_width(text.at + at, text.size - at);
            if (width == 0) return false;
            out_bytes(out, text.at + at, width);
        } else if (byte < 0x20 || byte == '"' || byte == '\\') {
            out_escaped(out, byte);
        } else {
            out_byte(out, byte);
        }
        at += width;
    }
    out_byte(out, '"');
    return true;
}

/* Unicode's table 3-7: what may follow which first byte. No surrogates, nothing overlong, nothing beyond U+10FFFF. */
size_t utf8_width(const uint8_t *at, size_t left)
{
    uint8_t first = at[0], least = 0x80, most = 0xBF;
    size_t width = first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
    if (width == 0 || left < width) return 0;
    if (first == 0xE0) least = 0xA0;
    if (first == 0xED) most = 0x9F;
    if (first == 0xF0) least = 0x90;
    if (first == 0xF4) most = 0x8F;
    if (at[1] < least || at[1] > most) return 0;
    for (size_t next = 2; next < width; next++) {
        if ((at[next] & 0xC0) != 0x80) return 0;
    }
    return width;
}

bool utf8_valid(Piece text)
{
    for (size_t at = 0; at < text.size;) {
        size_t width = text.at[at] < 0x80 ? 1 : utf8_width(text.at + at, text.size - at);
        if (width == 0) return false;
        at += width;
    }
    return true;
}

size_t find_key(Piece text, size_t from, const char *key, size_t key_size)
{
    while (from < text.size && text.size - from >= key_size) {
        const uint8_t *found = memchr(text.at + from, key[0], text.size - from - key_size + 1);
        if (found == NULL) return SIZE_MAX;
        if (memcmp(found, key, key_size) == 0) return (size_t)(found - text.at);
        from = (size_t)(found - text.at) + 1;
    }
    return SIZE_MAX;
}
