/* Members of JSON objects and elements of arrays, as pieces of the text. See kernel.json_members, kernel.json_elements.
 *
 * The grammar is checked strictly, so that what is found has a meaning: every value, and all of it.
 */
#include "kernel.h"

typedef struct {
    const uint8_t *at, *end;
} Text;

static inline void skip_spaces(Text *text)
{
    /* Most often there is none. */
    while (text->at < text->end && *text->at <= ' ' && (*text->at == ' ' || *text->at == '\n' || *text->at == '\r' || *text->at == '\t')) text->at++;
}

static inline bool next_is(Text *text, uint8_t byte)
{
    if (text->at == text->end || *text->at != byte) return false;
    text->at++;
    return true;
}

/* Marks bytes of a string that need a closer look: a quote, a backslash, a control character, or one that is not ASCII.
 * The lowest mark is right. A borrow may mark a byte above it as well. */
static inline uint64_t specials(uint64_t eight)
{
    const uint64_t ones = 0x0101010101010101ULL, highs = 0x8080808080808080ULL;
    uint64_t quote = eight ^ (ones * '"'), backslash = eight ^ (ones * '\\');
    uint64_t control = (eight - ones * 0x20) & ~eight;
    return (eight | control | ((quote - ones) & ~quote) | ((backslash - ones) & ~backslash)) & highs;
}

static bool is_hex(uint8_t byte)
{
    return (byte >= '0' && byte <= '9') || ((byte | 0x20) >= 'a' && (byte | 0x20) <= 'f');
}

static bool skip_escape(Text *text)
{
    size_t left = (size_t)(text->end - text->at);
    if (left == 0) return false;
    if (*text->at != 'u') return memchr("\"\\/bfnrt", *text->at, 8) != NULL && text->at++ != NULL;
    if (left < 5) return false;
    for (int digit = 1; digit < 5; digit++) {
        if (!is_hex(text->at[digit])) return false;
    }
    text->at += 5;
    return true;
}

/* A string whose opening quote has been read. Gives the piece between the quotes. */
static uint8_t string(Text *text, Piece *inside)
{
    uint8_t kind = JSON_TEXT;
    const uint8_t *begin = text->at;
    for (;;) {
        while (text->end - text->at >= 8) {
            uint64_t marks = specials(load64(text->at));
            text->at += marks ? __builtin_ctzll(marks) / 8 : 8;
            if (marks) break;
        }
        if (text->at == text->end) return JSON_NONE;
        uint8_t byte = *text->at;
        if (byte == '"') {
            *inside = piece_of(begin, (size_t)(text->at - begin));
            text->at++;
            return kind;
        }
        if (byte == '\\') {
            text->at++;
            if (!skip_escape(text)) return JSON_NONE;
            kind = JSON_ESCAPED;
        } else if (byte < 0x20) {
            return JSON_NONE;
        } else if (byte < 0x80) {
            text->at++;
        } else {
            size_t width = utf8_width(text->at, (size_t)(text->end - text->at));
            if (width == 0) return JSON_NONE;
            text->at += width;
        }
    }
}

static size_t skip_digits(Text *text)
{
    const uint8_t *begin = text->at;
    while (text->at < text->end && *text->at >= '0' && *text->at <= '9') text->at++;
    return (size_t)(text->at - begin);
}

static uint8_t number(Text *text)
{
    uint8_t kind = JSON_INTEGER;
    next_is(text, '-');
    if (!next_is(text, '0') && skip_digits(text) == 0) return JSON_NONE;
    if (next_is(text, '.')) {
        kind = JSON_NUMBER;
        if (skip_digits(text) == 0) return JSON_NONE;
    }
    if (next_is(text, 'e') || next_is(text, 'E')) {
        kind = JSON_NUMBER;
        if (!next_is(text, '+')) next_is(text, '-');
        if (skip_digits(text) == 0) return JSON_NONE;
    }
    return kind;
}

static uint8_t literal(Text *text, const char *word, size_t size, uint8_t kind)
{
    if ((size_t)(text->end - text->at) < size || memcmp(text->at, word, size) != 0) return JSON_NONE;
    text->at += size;
    return kind;
}

/* A value without brackets. Gives its piece: of a string without the quotes. */
static uint8_t scalar(Text *text, Piece *piece)
{
    const uint8_t *begin = text->at;
    uint8_t kind;
    switch (*begin) {
    case '"': text->at++; return string(text, piece);
    case 'n': kind = literal(text, "null", 4, JSON_NULL); break;
    case 't': kind = literal(text, "true", 4, JSON_TRUE); break;
    case 'f': kind = literal(text, "false", 5, JSON_FALSE); break;
    default: kind = number(text);
    }
    *piece = piece_of(begin, (size_t)(text->at - begin));
    return kind;
}

/* A name with its colon, and the spaces behind it. */
static uint8_t name(Text *text, Piece *piece)
{
    skip_spaces(text);
    if (!next_is(text, '"')) return JSON_NONE;
    uint8_t kind = string(text, piece);
    if (kind == JSON_NONE) return JSON_NONE;
    skip_spaces(text);
    return next_is(text, ':') ? kind : JSON_NONE;
}

/* Whatever follows an opening bracket that has been read, up to the closing one. `most`: brackets within brackets. */
static bool skip_rest(Text *text, bool is_object, size_t most)
{
    uint64_t objects[JSON_DEPTH / 64 + 1];
    size_t depth = 1;
    bool first = true;
    Piece unused;
    if (most < 1) return false;
    objects[0] = is_object;
    while (depth) {
        is_object = objects[(depth - 1) / 64] >> ((depth - 1) % 64) & 1;
        skip_spaces(text);
        if (next_is(text, is_object ? '}' : ']')) {
            depth--;
            first = false;
            continue;
        }
        if (!first && !next_is(text, ',')) return false;
        first = false;
        if (is_object && name(text, &unused) == JSON_NONE) return false;
        skip_spaces(text);
        if (text->at == text->end) return false;
        if (*text->at == '{' || *text->at == '[') {
            if (depth == most) return false;
            uint64_t bit = (uint64_t)1 << (depth % 64), *word = &objects[depth / 64];
            *word = *text->at == '{' ? *word | bit : *word & ~bit;
            depth++;
            text->at++;
            first = true;
        } else if (scalar(text, &unused) == JSON_NONE) {
            return false;
        }
    }
    return true;
}

/* Any value, with the spaces before it. `most`: how deep it may be nested. JSON_NONE: there is none, or not a sound one. */
static uint8_t value(Text *text, size_t most, Piece *piece)
{
    skip_spaces(text);
    if (text->at == text->end) return JSON_NONE;
    const uint8_t *begin = text->at;
    if (*begin != '{' && *begin != '[') return scalar(text, piece);
    text->at++;
    if (!skip_rest(text, *begin == '{', most)) return JSON_NONE;
    *piece = piece_of(begin, (size_t)(text->at - begin));
    return *begin == '{' ? JSON_OBJECT : JSON_ARRAY;
}

/* -- text that is known to be JSON ----------------------------------------------------------------------------------- */

/* Marks the quotes and backslashes of a string. The lowest mark is right. */
static inline uint64_t borders(uint64_t eight)
{
    const uint64_t ones = 0x0101010101010101ULL, highs = 0x8080808080808080ULL;
    uint64_t quote = eight ^ (ones * '"'), backslash = eight ^ (ones * '\\');
    return (((quote - ones) & ~quote) | ((backslash - ones) & ~backslash)) & highs;
}

/* As `string`, without a look at what is in it. */
static uint8_t leap_string(Text *text, Piece *inside)
{
    uint8_t kind = JSON_TEXT;
    const uint8_t *begin = text->at;
    for (;;) {
        while (text->end - text->at >= 8) {
            uint64_t marks = borders(load64(text->at));
            text->at += marks ? __builtin_ctzll(marks) / 8 : 8;
            if (marks) break;
        }
        if (text->at == text->end) return JSON_NONE;
        uint8_t byte = *text->at++;
        if (byte == '"') {
            *inside = piece_of(begin, (size_t)(text->at - begin) - 1);
            return kind;
        }
        if (byte == '\\') {
            if (text->at == text->end) return JSON_NONE;
            text->at++;
            kind = JSON_ESCAPED;
        }
    }
}

/* As `skip_rest`, by the brackets alone. */
static bool leap_rest(Text *text, size_t most)
{
    size_t depth = 1;
    Piece unused;
    if (most < 1) return false;
    while (text->at < text->end) {
        uint8_t byte = *text->at++;
        if (byte == '"') {
            if (leap_string(text, &unused) == JSON_NONE) return false;
        } else if (byte == '{' || byte == '[') {
            if (depth++ == most) return false;
        } else if (byte == '}' || byte == ']') {
            if (--depth == 0) return true;
        }
    }
    return false;
}

/* Past any value, with the spaces before it. */
static bool leap(Text *text, size_t most)
{
    Piece unused;
    skip_spaces(text);
    if (text->at == text->end) return false;
    const uint8_t *begin = text->at;
    uint8_t first = *begin;
    if (first == '"' || first == '{' || first == '[') {
        text->at++;
        return first == '"' ? leap_string(text, &unused) != JSON_NONE : leap_rest(text, most);
    }
    while (text->at < text->end && *text->at > ' ' && *text->at != ',' && *text->at != '}' && *text->at != ']') text->at++;
    return text->at != begin;
}

/* As `name`. */
static uint8_t leap_name(Text *text, Piece *piece)
{
    skip_spaces(text);
    if (!next_is(text, '"')) return JSON_NONE;
    uint8_t kind = leap_string(text, piece);
    if (kind == JSON_NONE) return JSON_NONE;
    skip_spaces(text);
    return next_is(text, ':') ? kind : JSON_NONE;
}

/* -- members --------------------------------------------------------------------------------------------------------- */

typedef struct {
    Piece *names;
    size_t count;
    /* Members often come in the order of the names. */
    size_t likely;
} Names;

static size_t find_name(Names *names, Piece key)
{
    for (size_t step = 0, at = names->likely; step < names->count; step++, at = at + 1 == names->count ? 0 : at + 1) {
        Piece each = names->names[at];
        if (each.size == key.size && (key.size == 0 || each.at[0] == key.at[0]) && memcmp(each.at, key.at, key.size) == 0) {
            names->likely = at + 1 == names->count ? 0 : at + 1;
            return at;
        }
    }
    return SIZE_MAX;
}

static size_t find_escaped(Names *names, Piece key)
{
    uint8_t plain[JSON_NAME_BYTES];
    Out out = {plain, plain + sizeof plain, false};
    if (!out_unescaped(&out, key) || out.full) return SIZE_MAX;
    return find_name(names, piece_of(plain, (size_t)(out.at - plain)));
}

typedef struct {
    const uint8_t *buffer;
    size_t rows;
    int64_t *starts, *ends;
    uint8_t *kinds;
} Found;

static void note(Found *found, size_t at, const uint8_t *buffer, Piece piece, uint8_t kind)
{
    found->starts[at] = piece.at - buffer;
    found->ends[at] = piece.at - buffer + (int64_t)piece.size;
    found->kinds[at] = kind;
}

static void forget(Found *found, size_t row, size_t names)
{
    for (size_t name = 0; name < names; name++) {
        size_t at = name * found->rows + row;
        found->starts[at] = found->ends[at] = 0;
        found->kinds[at] = JSON_NONE;
    }
}

/* The members of one row. The kind of its value; JSON_NONE: it is not JSON. `sure`: it is known to be JSON, and may have
 * something behind it: members without a name are not looked into. */
static uint8_t members(Text text, size_t row, bool sure, Names *names, Found *found)
{
    Piece piece = piece_of(text.at, 0);
    skip_spaces(&text);
    if (text.at == text.end || *text.at != '{') {
        uint8_t kind = value(&text, JSON_DEPTH, &piece);
        skip_spaces(&text);
        return text.at == text.end ? kind : JSON_NONE;
    }
    text.at++;
    names->likely = 0;
    for (bool first = true;; first = false) {
        skip_spaces(&text);
        if (next_is(&text, '}')) break;
        if (!first && !next_is(&text, ',')) return JSON_NONE;
        uint8_t kind = sure ? leap_name(&text, &piece) : name(&text, &piece);
        if (kind == JSON_NONE) return JSON_NONE;
        size_t at = kind == JSON_TEXT ? find_name(names, piece) : find_escaped(names, piece);
        if (sure && at == SIZE_MAX) {
            if (!leap(&text, JSON_DEPTH - 1)) return JSON_NONE;
            continue;
        }
        kind = value(&text, JSON_DEPTH - 1, &piece);
        if (kind == JSON_NONE) return JSON_NONE;
        if (at != SIZE_MAX) note(found, at * found->rows + row, found->buffer, piece, kind);
    }
    skip_spaces(&text);
    return text.at == text.end ? JSON_OBJECT : JSON_NONE;
}

static PyObject *hold_names(PyObject *object, Names *names)
{
    PyObject *tuple = PySequence_Tuple(object);
    if (tuple == NULL) return NULL;
    names->count = (size_t)PyTuple_Size(tuple);
    names->names = PyMem_Malloc((names->count + 1) * sizeof(Piece));
    if (names->names == NULL) {
        Py_DECREF(tuple);
        return PyErr_NoMemory();
    }
    for (size_t at = 0; at < names->count; at++) {
        char *bytes;
        Py_ssize_t size;
        if (PyBytes_AsStringAndSize(PyTuple_GetItem(tuple, (Py_ssize_t)at), &bytes, &size)) goto failed;
        if (size > JSON_NAME_BYTES) {
            PyErr_Format(PyExc_ValueError, "a name has more than %d bytes", JSON_NAME_BYTES);
            goto failed;
        }
        names->names[at] = piece_of(bytes, (size_t)size);
    }
    return tuple;
failed:
    PyMem_Free(names->names);
    Py_DECREF(tuple);
    return NULL;
}

bool hold_spans(PyObject *buffer, PyObject *starts, PyObject *ends, Spans *spans)
{
    if (!hold(buffer, &spans->buffer)) return false;
    if (!hold_column(starts, 8, SIZE_MAX, "starts", &spans->starts)) goto without_starts;
    spans->count = spans->starts.piece.size / 8;
    if (!hold_column(ends, 8, spans->count, "ends", &spans->ends)) goto without_ends;
    return true;
without_ends:
    let_go(&spans->starts);
without_starts:
    let_go(&spans->buffer);
    return false;
}

bool span_at(const Spans *spans, size_t row, Piece *piece)
{
    uint64_t start = load64(spans->starts.piece.at + row * 8), end = load64(spans->ends.piece.at + row * 8);
    if (start > end || end > spans->buffer.piece.size) return false;
    *piece = piece_of(spans->buffer.piece.at + start, end - start);
    return true;
}

void let_go_spans(Spans *spans)
{
    let_go(&spans->ends);
    let_go(&spans->starts);
    let_go(&spans->buffer);
}

PyObject *outside(size_t row)
{
    return PyErr_Format(PyExc_ValueError, "span %zu lies outside the buffer", row);
}

/* (buffer, starts, ends, names, sure) -> (kinds, starts, ends, kinds of members) */
KERNEL_FUNCTION(kernel_json_members)
{
    (void)module;
    Spans spans;
    Names names = {NULL, 0, 0};
    uint64_t sure;
    if (!takes("json_members", count, 5) || !number_of(args[4], 1, &sure) || !hold_spans(args[0], args[1], args[2], &spans)) return NULL;
    PyObject *tuple = hold_names(args[3], &names), *result = NULL, *columns[4] = {NULL, NULL, NULL, NULL};
    if (tuple == NULL) {
        let_go_spans(&spans);
        return NULL;
    }
    size_t cells = spans.count * names.count, widths[4] = {spans.count, cells * 8, cells * 8, cells};
    Out outs[4];
    for (int each = 0; each < 4; each++) {
        columns[each] = names.count && cells / names.count != spans.count ? PyErr_NoMemory() : new_bytes(widths[each], &outs[each]);
        if (columns[each] == NULL) goto done;
    }
    Found found = {spans.buffer.piece.at, spans.count, (int64_t *)(void *)outs[1].at, (int64_t *)(void *)outs[2].at, outs[3].at};
    size_t wrong = SIZE_MAX;
    PyThreadState *released = spans.buffer.piece.size >= RELEASE_BYTES ? PyEval_SaveThread() : NULL;
    for (size_t row = 0; row < spans.count; row++) {
        Piece piece;
        if (!span_at(&spans, row, &piece)) {
            wrong = row;
            break;
        }
        Text text = {piece.at, piece.at + piece.size};
        forget(&found, row, names.count);
        uint8_t kind = members(text, row, sure != 0, &names, &found);
        if (kind == JSON_NONE) forget(&found, row, names.count);
        outs[0].at[row] = kind;
    }
    if (released) PyEval_RestoreThread(released);
    if (wrong != SIZE_MAX) outside(wrong);
    else result = PyTuple_Pack(4, columns[0], columns[1], columns[2], columns[3]);
done:
    for (int each = 0; each < 4; each++) Py_XDECREF(columns[each]);
    PyMem_Free(names.names);
    Py_DECREF(tuple);
    let_go_spans(&spans);
    return result;
}

/* -- elements -------------------------------------------------------------------------------------------------------- */

/* The elements of one array, or the members of one object, from number `at` on; `found` NULL: only counts them.
 * SIZE_MAX: it is neither, or has more than `most` (the buffer may be one that another thread writes to). */
static size_t elements(Text text, size_t at, size_t most, const uint8_t *buffer, Found *found, Found *names)
{
    Piece piece = piece_of(text.at, 0), key = piece;
    uint8_t key_kind = JSON_NONE;
    size_t seen = 0;
    skip_spaces(&text);
    if (text.at == text.end || (*text.at != '{' && *text.at != '[')) return SIZE_MAX;
    bool is_object = *text.at++ == '{';
    for (;; seen++) {
        skip_spaces(&text);
        if (next_is(&text, is_object ? '}' : ']')) break;
        if (seen == most || (seen && !next_is(&text, ','))) return SIZE_MAX;
        if (is_object && (key_kind = name(&text, &key)) == JSON_NONE) return SIZE_MAX;
        uint8_t kind = value(&text, JSON_DEPTH - 1, &piece);
        if (kind == JSON_NONE) return SIZE_MAX;
        if (found == NULL) continue;
        note(found, at + seen, buffer, piece, kind);
        if (is_object) {
            note(names, at + seen, buffer, key, key_kind);
        } else {
            names->starts[at + seen] = names->ends[at + seen] = 0;
            names->kinds[at + seen] = JSON_NONE;
        }
    }
    skip_spaces(&text);
    return text.at == text.end ? seen : SIZE_MAX;
}

/* (buffer, starts, ends) -> (counts, starts, ends, kinds, and of the names of members starts, ends, kinds) */
KERNEL_FUNCTION(kernel_json_elements)
{
    (void)module;
    Spans spans;
    if (!takes("json_elements", count, 3) || !hold_spans(args[0], args[1], args[2], &spans)) return NULL;
    PyObject *result = NULL, *columns[7] = {NULL};
    Out outs[7];
    size_t total = 0, wrong = SIZE_MAX;
    columns[0] = new_bytes(spans.count * 8, &outs[0]);
    if (columns[0] == NULL) goto done;
    PyThreadState *released = spans.buffer.piece.size >= RELEASE_BYTES ? PyEval_SaveThread() : NULL;
    for (size_t row = 0; row < spans.count && wrong == SIZE_MAX; row++) {
        Piece piece;
        if (!span_at(&spans, row, &piece)) {
            wrong = row;
            break;
        }
        Text text = {piece.at, piece.at + piece.size};
        size_t seen = elements(text, 0, SIZE_MAX, spans.buffer.piece.at, NULL, NULL);
        if (seen == SIZE_MAX) seen = 0;
        store64(outs[0].at + row * 8, seen);
        total += seen;
    }
    if (released) PyEval_RestoreThread(released);
    if (wrong != SIZE_MAX) {
        outside(wrong);
        goto done;
    }
    for (int each = 1; each < 7; each++) {
        columns[each] = new_bytes(each % 3 ? total * 8 : total, &outs[each]);
        if (columns[each] == NULL) goto done;
    }
    Found found = {spans.buffer.piece.at, total, (int64_t *)(void *)outs[1].at, (int64_t *)(void *)outs[2].at, outs[3].at};
    Found keys = {spans.buffer.piece.at, total, (int64_t *)(void *)outs[4].at, (int64_t *)(void *)outs[5].at, outs[6].at};
    released = spans.buffer.piece.size >= RELEASE_BYTES ? PyEval_SaveThread() : NULL;
    for (size_t row = 0, at = 0; row < spans.count; row++) {
        size_t seen = load64(outs[0].at + row * 8);
        Piece piece;
        if (seen == 0 || !span_at(&spans, row, &piece)) continue;
        Text text = {piece.at, piece.at + piece.size};
        elements(text, at, seen, spans.buffer.piece.at, &found, &keys);
        at += seen;
    }
    if (released) PyEval_RestoreThread(released);
    result = PyTuple_Pack(7, columns[0], columns[1], columns[2], columns[3], columns[4], columns[5], columns[6]);
done:
    for (int each = 0; each < 7; each++) Py_XDECREF(columns[each]);
    let_go_spans(&spans);
    return result;
}
