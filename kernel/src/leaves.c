/* Values of JSON text as columns: strings, integers, decimals, dates and times. See kernel.json_texts and the functions after it.
 *
 * Spans and kinds are those that json_members has found, but nothing here relies on that.
 */
#include "kernel.h"

static int hex_of(uint8_t byte)
{
    if (byte >= '0' && byte <= '9') return byte - '0';
    byte |= 0x20;
    return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

static bool four_digits(Piece text, size_t at, uint32_t *unit)
{
    if (text.size - at < 4) return false;
    *unit = 0;
    for (size_t digit = at; digit < at + 4; digit++) {
        int number = hex_of(text.at[digit]);
        if (number < 0) return false;
        *unit = *unit << 4 | (uint32_t)number;
    }
    return true;
}

static void out_utf8(Out *out, uint32_t point)
{
    if (point < 0x80) {
        out_byte(out, (uint8_t)point);
    } else if (point < 0x800) {
        out_byte(out, (uint8_t)(0xC0 | point >> 6));
        out_byte(out, (uint8_t)(0x80 | (point & 63)));
    } else if (point < 0x10000) {
        out_byte(out, (uint8_t)(0xE0 | point >> 12));
        out_byte(out, (uint8_t)(0x80 | (point >> 6 & 63)));
        out_byte(out, (uint8_t)(0x80 | (point & 63)));
    } else {
        out_byte(out, (uint8_t)(0xF0 | point >> 18));
        out_byte(out, (uint8_t)(0x80 | (point >> 12 & 63)));
        out_byte(out, (uint8_t)(0x80 | (point >> 6 & 63)));
        out_byte(out, (uint8_t)(0x80 | (point & 63)));
    }
}

bool out_unescaped(Out *out, Piece text)
{
    static const char FROM[] = "\"\\/bfnrt", TO[] = "\"\\/\b\f\n\r\t";
    for (size_t at = 0; at < text.size;) {
        const uint8_t *next = memchr(text.at + at, '\\', text.size - at);
        size_t end = next == NULL ? text.size : (size_t)(next - text.at);
        out_bytes(out, text.at + at, end - at);
        at = end + 1;
        if (end == text.size) break;
        if (at == text.size) return false;
        uint8_t byte = text.at[at++];
        if (byte != 'u') {
            const char *known = memchr(FROM, byte, sizeof FROM - 1);
            if (known == NULL) return false;
            out_byte(out, (uint8_t)TO[known - FROM]);
            continue;
        }
        uint32_t point, low;
        if (!four_digits(text, at, &point)) return false;
        at += 4;
        if (point >= 0xDC00 && point < 0xE000) return false;
        if (point >= 0xD800 && point < 0xDC00) {
            if (text.size - at < 6 || text.at[at] != '\\' || text.at[at + 1] != 'u' || !four_digits(text, at + 2, &low)) return false;
            if (low < 0xDC00 || low > 0xDFFF) return false;
            point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00);
            at += 6;
        }
        out_utf8(out, point);
    }
    return true;
}

/* Spans with their kinds. False with an error set. */
static bool hold_leaves(PyObject *const *args, Spans *spans, Held *kinds)
{
    if (!hold_spans(args[0], args[1], args[2], spans)) return false;
    if (hold_column(args[3], 1, spans->count, "kinds", kinds)) return true;
    let_go_spans(spans);
    return false;
}

/* Appends a piece of a buffer. Most texts are short: to copy a constant size takes less time than to call a function. */
static inline void out_short(Out *out, Piece piece, const uint8_t *readable)
{
    enum { SOME = 16 };
    if (piece.size <= SOME && readable - piece.at >= SOME && out->end - out->at >= SOME) {
        memcpy(out->at, piece.at, SOME);
        out->at += piece.size;
    } else {
        out_piece(out, piece);
    }
}

/* (buffer, starts, ends, kinds) -> (offsets, text, fits) */
KERNEL_FUNCTION(kernel_json_texts)
{
    (void)module;
    Spans spans;
    Held kinds;
    if (!takes("json_texts", count, 4) || !hold_leaves(args, &spans, &kinds)) return NULL;
    PyObject *offsets = NULL, *text = NULL, *fits = NULL, *result = NULL;
    Out offsets_out, text_out, fits_out;
    size_t size = 0;
    Piece piece;
    for (size_t row = 0; row < spans.count; row++) {
        if (!span_at(&spans, row, &piece)) {
            outside(row);
            goto done;
        }
        if (kinds.piece.at[row] > JSON_NULL) size += piece.size;
        if (size > INT32_MAX) {
            PyErr_SetString(PyExc_ValueError, "the texts have more than 2 GiB");
            goto done;
        }
    }
    if ((offsets = new_bytes((spans.count + 1) * 4, &offsets_out)) == NULL) goto done;
    if ((text = new_bytes(size, &text_out)) == NULL || (fits = new_bytes(spans.count, &fits_out)) == NULL) goto done;
    uint8_t *begin = text_out.at;
    PyThreadState *released = spans.buffer.piece.size >= RELEASE_BYTES ? PyEval_SaveThread() : NULL;
    const uint8_t *readable = spans.buffer.piece.at + spans.buffer.piece.size;
    store32(offsets_out.at, 0);
    for (size_t row = 0; row < spans.count; row++) {
        uint8_t kind = kinds.piece.at[row];
        bool good = true;
        uint8_t *before = text_out.at;
        span_at(&spans, row, &piece);
        if (kind == JSON_ESCAPED) good = out_unescaped(&text_out, piece);
        else if (kind > JSON_NULL) out_short(&text_out, piece, readable);
        if (!good) text_out.at = before;
        fits_out.at[row] = good;
        store32(offsets_out.at + (row + 1) * 4, (uint32_t)(text_out.at - begin));
    }
    if (released) PyEval_RestoreThread(released);
    text = cut_bytes(text, &text_out);
    if (text != NULL) result = PyTuple_Pack(3, offsets, text, fits);
done:
    Py_XDECREF(offsets);
    Py_XDECREF(text);
    Py_XDECREF(fits);
    let_go(&kinds);
    let_go_spans(&spans);
    return result;
}

/* A whole number of JSON with at most `bits` bits, and a sign. */
static bool integer_of(Piece text, unsigned bits, int64_t *number)
{
    size_t at = 0;
    bool negative = text.size && text.at[0] == '-';
    uint64_t magnitude = 0, most = ((uint64_t)1 << bits) - !negative;
    if (negative) at++;
    if (at == text.size) return false;
    for (; at < text.size; at++) {
        uint8_t digit = (uint8_t)(text.at[at] - '0');
        /* Dividing is slow, and 18 digits always have room. */
        if (digit > 9 || (at > 17 && magnitude > (most - digit) / 10)) return false;
        magnitude = magnitude * 10 + digit;
    }
    if (magnitude > most) return false;
    *number = negative ? (int64_t)(0 - magnitude) : (int64_t)magnitude;
    return true;
}

/* (buffer, starts, ends, kinds, bits) -> (numbers, fits) */
KERNEL_FUNCTION(kernel_json_integers)
{
    (void)module;
    Spans spans;
    Held kinds;
    uint64_t bits;
    if (!takes("json_integers", count, 5) || !number_of(args[4], 63, &bits) || !hold_leaves(args, &spans, &kinds)) return NULL;
    Out numbers_out, fits_out;
    PyObject *numbers = new_bytes(spans.count * 8, &numbers_out), *result = NULL;
    PyObject *fits = numbers == NULL ? NULL : new_bytes(spans.count, &fits_out);
    size_t wrong = SIZE_MAX;
    if (fits == NULL) goto done;
    PyThreadState *released = spans.buffer.piece.size >= RELEASE_BYTES ? PyEval_SaveThread() : NULL;
    for (size_t row = 0; row < spans.count; row++) {
        int64_t number = 0;
        Piece piece;
        if (!span_at(&spans, row, &piece)) {
            wrong = row;
            break;
        }
        bool good = kinds.piece.at[row] == JSON_INTEGER && integer_of(piece, (unsigned)bits, &number);
        fits_out.at[row] = good;
        store64(numbers_out.at + row * 8, good ? (uint64_t)number : 0);
    }
    if (released) PyEval_RestoreThread(released);
    if (wrong != SIZE_MAX) outside(wrong);
    else result = PyTuple_Pack(2, numbers, fits);
done:
    Py_XDECREF(numbers);
    Py_XDECREF(fits);
    let_go(&kinds);
    let_go_spans(&spans);
    return result;
}

typedef unsigned __int128 Wide;

/* An exponent, which is everything behind the e. Saturates: no text is that long. */
static bool exponent_of(Piece text, int64_t *exponent)
{
    size_t at = 0;
    bool negative = text.size && text.at[0] == '-';
    if (text.size && (text.at[0] == '-' || text.at[0] == '+')) at++;
    if (at == text.size) return false;
    for (*exponent = 0; at < text.size; at++) {
        uint8_t digit = (uint8_t)(text.at[at] - '0');
        if (digit > 9) return false;
        if (*exponent < INT64_C(1) << 50) *exponent = *exponent * 10 + digit;
    }
    if (negative) *exponent = -*exponent;
    return true;
}

/* The digits of a number of JSON, without its point and its exponent. */
typedef struct {
    Piece text;
    size_t point, end; /* where the point is, or where the digits end */
} Digits;

static bool is_digit_at(const Digits *digits, size_t at) { return at != digits->point; }

/* The number times 10**scale, rounded half up. False: it is not a number, or it has more than `precision` digits. */
static bool decimal_of(Piece text, unsigned precision, unsigned scale, bool *negative, Wide *number)
{
    Digits digits = {text, SIZE_MAX, text.size};
    int64_t exponent = 0, fraction = 0, integral = 0;
    size_t begin = *negative = text.size && text.at[0] == '-';
    for (size_t at = begin; at < text.size; at++) {
        uint8_t byte = text.at[at];
        if (byte == 'e' || byte == 'E') {
            if (!exponent_of(piece_of(text.at + at + 1, text.size - at - 1), &exponent)) return false;
            digits.end = at;
            break;
        }
        if (byte == '.' && digits.point == SIZE_MAX) digits.point = at;
        else if (byte < '0' || byte > '9') return false;
        else if (digits.point == SIZE_MAX) integral++;
        else fraction++;
    }
    if (integral == 0 || (digits.point != SIZE_MAX && fraction == 0)) return false;
    if (integral > 1 && text.at[begin] == '0') return false;
    Wide most = 1;
    for (unsigned digit = 0; digit < precision; digit++) most *= 10;
    const Wide tenth = most / 10;
    /* `keep` of all digits are in the result; a negative number: zeros are before them. */
    int64_t keep = integral + exponent + (int64_t)scale, seen = 0;
    uint64_t head = 0; /* of the first 18 digits, which need no wide arithmetic */
    size_t at = begin;
    for (; at < digits.end && seen < 18 && seen < keep; at++) {
        if (!is_digit_at(&digits, at)) continue;
        head = head * 10 + (uint8_t)(text.at[at] - '0');
        seen++;
    }
    *number = head;
    for (; at < digits.end; at++) {
        if (!is_digit_at(&digits, at)) continue;
        uint8_t digit = (uint8_t)(text.at[at] - '0');
        if (seen >= keep) {
            if (seen == keep && digit >= 5) *number += 1;
            break;
        }
        if (*number >= tenth) return false;
        *number = *number * 10 + digit;
        seen++;
    }
    for (; *number && seen < keep; seen++) {
        if (*number >= tenth) return false;
        *number *= 10;
    }
    return *number < most;
}

/* (buffer, starts, ends, kinds, precision, scale) -> (numbers of 16 bytes, fits) */
KERNEL_FUNCTION(kernel_json_decimals)
{
    (void)module;
    Spans spans;
    Held kinds;
    uint64_t precision, scale;
    if (!takes("json_decimals", count, 6) || !number_of(args[4], 38, &precision) || !number_of(args[5], 38, &scale)) return NULL;
    if (!hold_leaves(args, &spans, &kinds)) return NULL;
    Out numbers_out, fits_out;
    PyObject *numbers = new_bytes(spans.count * 16, &numbers_out), *result = NULL;
    PyObject *fits = numbers == NULL ? NULL : new_bytes(spans.count, &fits_out);
    size_t wrong = SIZE_MAX;
    if (fits == NULL) goto done;
    PyThreadState *released = spans.buffer.piece.size >= RELEASE_BYTES ? PyEval_SaveThread() : NULL;
    for (size_t row = 0; row < spans.count; row++) {
        uint8_t kind = kinds.piece.at[row];
        Wide number = 0;
        bool negative = false;
        Piece piece;
        if (!span_at(&spans, row, &piece)) {
            wrong = row;
            break;
        }
        bool good = (kind == JSON_INTEGER || kind == JSON_NUMBER || kind == JSON_TEXT)
                    && decimal_of(piece, (unsigned)precision, (unsigned)scale, &negative, &number);
        if (!good) number = 0;
        else if (negative) number = 0 - number;
        memcpy(numbers_out.at + row * 16, &number, 16);
        fits_out.at[row] = good;
    }
    if (released) PyEval_RestoreThread(released);
    if (wrong != SIZE_MAX) outside(wrong);
    else result = PyTuple_Pack(2, numbers, fits);
done:
    Py_XDECREF(numbers);
    Py_XDECREF(fits);
    let_go(&kinds);
    let_go_spans(&spans);
    return result;
}

/* -- dates and times ----------------------------------------------------------------------------------------------- */

/* `kernel.Moment`. */
enum { MOMENT_NONE, MOMENT_DATE, MOMENT_LOCAL, MOMENT_ZONED };

/* Exactly `digits` digits that make a number from `least` to `most`. */
static bool digits_at(Piece *text, unsigned digits, unsigned least, unsigned most, int64_t *number)
{
    if (text->size < digits) return false;
    *number = 0;
    for (unsigned at = 0; at < digits; at++) {
        uint8_t digit = (uint8_t)(text->at[at] - '0');
        if (digit > 9) return false;
        *number = *number * 10 + digit;
    }
    *text = piece_of(text->at + digits, text->size - digits);
    return *number >= least && *number <= most;
}

static bool one_of(Piece *text, const char *bytes, size_t count)
{
    if (text->size == 0 || memchr(bytes, text->at[0], count) == NULL) return false;
    *text = piece_of(text->at + 1, text->size - 1);
    return true;
}

/* Days since 1970 of a date of the Gregorian calendar. */
static int64_t days_of(int64_t year, int64_t month, int64_t day)
{
    year -= month <= 2;
    int64_t era = year / 400, of_era = year - era * 400;
    int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

static bool fraction_of(Piece *text, int64_t *micros)
{
    unsigned digits = 0;
    for (*micros = 0; text->size && text->at[0] >= '0' && text->at[0] <= '9'; digits++) {
        if (digits < 6) *micros = *micros * 10 + (text->at[0] - '0');
        *text = piece_of(text->at + 1, text->size - 1);
    }
    for (unsigned missing = digits; missing < 6; missing++) *micros *= 10;
    return digits >= 1 && digits <= 9;
}

/* The offset of a zone in minutes; nothing is left of the text. */
static bool zone_of(Piece *text, int64_t *minutes)
{
    int64_t hour, minute = 0;
    *minutes = 0;
    if (one_of(text, "Zz", 2)) return text->size == 0;
    bool negative = text->at[0] == '-';
    if (!one_of(text, "+-", 2) || !digits_at(text, 2, 0, 23, &hour)) return false;
    if (text->size) {
        one_of(text, ":", 1);
        if (!digits_at(text, 2, 0, 59, &minute)) return false;
    }
    *minutes = (hour * 60 + minute) * (negative ? -1 : 1);
    return text->size == 0;
}

static uint8_t moment_of(Piece text, int64_t *micros)
{
    static const uint8_t DAYS[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    const int64_t DAY_S = 86400, US = 1000000;
    int64_t year, month, day, hour, minute, second = 0, fraction = 0, zone = 0;
    if (!digits_at(&text, 4, 1, 9999, &year) || !one_of(&text, "-", 1) || !digits_at(&text, 2, 1, 12, &month)) return MOMENT_NONE;
    bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    unsigned last = DAYS[month - 1] + (month == 2 && leap);
    if (!one_of(&text, "-", 1) || !digits_at(&text, 2, 1, last, &day)) return MOMENT_NONE;
    int64_t days = days_of(year, month, day);
    *micros = days * DAY_S * US;
    if (text.size == 0) return MOMENT_DATE;
    if (!one_of(&text, "Tt ", 3) || !digits_at(&text, 2, 0, 23, &hour) || !one_of(&text, ":", 1)) return MOMENT_NONE;
    if (!digits_at(&text, 2, 0, 59, &minute)) return MOMENT_NONE;
    if (one_of(&text, ":", 1)) {
        if (!digits_at(&text, 2, 0, 59, &second)) return MOMENT_NONE;
        if (one_of(&text, ".", 1) && !fraction_of(&text, &fraction)) return MOMENT_NONE;
    }
    bool zoned = text.size != 0;
    if (zoned && !zone_of(&text, &zone)) return MOMENT_NONE;
    *micros = (days * DAY_S + hour * 3600 + (minute - zone) * 60 + second) * US + fraction;
    /* A zone must not lead out of the years that have four digits. */
    if (*micros < days_of(1, 1, 1) * DAY_S * US || *micros >= days_of(10000, 1, 1) * DAY_S * US) return MOMENT_NONE;
    return zoned ? MOMENT_ZONED : MOMENT_LOCAL;
}

/* (buffer, starts, ends, kinds) -> (microseconds, kinds of moments) */
KERNEL_FUNCTION(kernel_json_moments)
{
    (void)module;
    Spans spans;
    Held kinds;
    if (!takes("json_moments", count, 4) || !hold_leaves(args, &spans, &kinds)) return NULL;
    Out micros_out, found_out;
    PyObject *micros = new_bytes(spans.count * 8, &micros_out), *result = NULL;
    PyObject *found = micros == NULL ? NULL : new_bytes(spans.count, &found_out);
    size_t wrong = SIZE_MAX;
    if (found == NULL) goto done;
    PyThreadState *released = spans.buffer.piece.size >= RELEASE_BYTES ? PyEval_SaveThread() : NULL;
    for (size_t row = 0; row < spans.count; row++) {
        int64_t moment = 0;
        Piece piece;
        if (!span_at(&spans, row, &piece)) {
            wrong = row;
            break;
        }
        uint8_t kind = kinds.piece.at[row] == JSON_TEXT ? moment_of(piece, &moment) : MOMENT_NONE;
        found_out.at[row] = kind;
        store64(micros_out.at + row * 8, kind == MOMENT_NONE ? 0 : (uint64_t)moment);
    }
    if (released) PyEval_RestoreThread(released);
    if (wrong != SIZE_MAX) outside(wrong);
    else result = PyTuple_Pack(2, micros, found);
done:
    Py_XDECREF(micros);
    Py_XDECREF(found);
    let_go(&kinds);
    let_go_spans(&spans);
    return result;
}
