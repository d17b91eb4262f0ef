/* Members of JSON objects and elements of arrays, as pieces of the text. See kernel.json_members, kernel.json_elements.
 *
 * The grammar is checked strictly, so that what is found has a meaning: every value, and all of it. Only of text that is
 * known to be JSON nothing is checked but requested values.
 */
#include "kernel.h"
#include "marks.h"

#include <stdlib.h>

typedef struct {
    const uint8_t *at, *end;
} Text;

static inline bool is_space(uint8_t byte) { return byte <= ' ' && (byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t'); }

static inline void skip_spaces(Text *text)
{
    /* Most often there is none. */
    while (text->at < text->end && is_space(*text->at)) text->at++;
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

/* -- members --------------------------------------------------------------------------------------------------------- */

typedef struct {
    Piece *names;
    size_t count;
    /* Members often come in the order of the names. */
    size_t likely;
    uint64_t sizes; /* a bit for each size of a name, modulo 64 */
    /* The different sizes, if they are few and small. 0: they are not. */
    unsigned some[4], few;
} Names;

static inline uint64_t size_bit(size_t size) { return (uint64_t)1 << (size % 64); }

/* Whether two texts of the same size are the same. Names are short: a call takes longer than this. */
static inline bool same(const uint8_t *one, const uint8_t *other, size_t size)
{
    if (size < 4) {
        for (size_t at = 0; at < size; at++) {
            if (one[at] != other[at]) return false;
        }
        return true;
    }
    if (size < 8) return load32(one) == load32(other) && load32(one + size - 4) == load32(other + size - 4);
    for (size_t at = 0; at + 8 < size; at += 8) {
        if (load64(one + at) != load64(other + at)) return false;
    }
    return load64(one + size - 8) == load64(other + size - 8);
}

static size_t find_name(Names *names, Piece key)
{
    for (size_t step = 0, at = names->likely; step < names->count; step++, at = at + 1 == names->count ? 0 : at + 1) {
        Piece each = names->names[at];
        if (each.size == key.size && same(each.at, key.at, key.size)) {
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

/* A row. Nothing from `readable` on may be read. */
typedef struct {
    Text text;
    const uint8_t *readable;
    size_t number;
} Record;

static inline size_t find_key_of(Names *names, Piece key, bool escapes)
{
    if (escapes) return find_escaped(names, key);
    return names->sizes & size_bit(key.size) ? find_name(names, key) : SIZE_MAX;
}

/* A requested member of an object that is known to be JSON. */
typedef struct {
    size_t at;            /* number of its name; SIZE_MAX: there is none */
    const uint8_t *begin; /* of its value */
} Member;

/* Reads the value, and checks it and what it ends with; not an object or array, whose end the caller looks for. */
static bool read_value(Text *text, Member *member, size_t row, Found *found)
{
    Piece piece;
    skip_spaces(text);
    if (text->at == text->end) return false;
    member->begin = text->at;
    if (*text->at == '{' || *text->at == '[') return true;
    uint8_t kind = scalar(text, &piece);
    if (kind == JSON_NONE) return false;
    skip_spaces(text);
    if (text->at == text->end || (*text->at != ',' && *text->at != '}')) return false;
    note(found, member->at * found->rows + row, found->buffer, piece, kind);
    member->at = SIZE_MAX;
    return true;
}

/* The name whose opening quote and colon these are. False: it is none. */
static inline bool name_of(const uint8_t *quote, const uint8_t *colon, Piece *name)
{
    if (quote == NULL) return false;
    while (colon - quote > 2 && is_space(colon[-1])) colon--;
    if (colon - quote < 2 || colon[-1] != '"') return false;
    *name = piece_of(quote + 1, (size_t)(colon - quote) - 2);
    return true;
}

/* Where strings begin and end in a block, and where they begin in the block before. */
typedef struct {
    uint64_t begins, ends, begins_before;
} Strings;

/* The colons without those whose names have other sizes than the requested ones. A few others may stay: those with
 * spaces before them, and one that is the first byte of its block. */
static inline uint64_t of_sizes(uint64_t colons, const Strings *strings, const Names *names)
{
    uint64_t fit = 0;
    for (unsigned each = 0; each < names->few; each++) {
        unsigned by = names->some[each] + 2; /* quotes; at most 63 */
        fit |= strings->begins << by | strings->begins_before >> (BLOCK - by);
    }
    return colons & (fit | ~(strings->ends << 1));
}

static inline const uint8_t *highest_of(const uint8_t *block, uint64_t bits) { return block + 63 - __builtin_clzll(bits); }

/* The members of an object that is known to be JSON, and may have something behind it. Each colon of the object itself is
 * behind a name; whatever has no name is not looked at. */
INLINE uint8_t known_members_by(Record record, Names *names, Found *found, MarksOf *marks_of_64)
{
    Text text = record.text;
    const uint8_t *quote = NULL; /* the last one that begins a string in the blocks before */
    uint64_t in_string = 0;      /* all bits are set if the block begins within a string */
    bool carried = false, escapes = false;
    size_t depth = 0;
    Member member = {SIZE_MAX, NULL};
    Strings strings = {0, 0, 0};
    for (const uint8_t *block = text.at, *next; block < text.end; block = next) {
        next = text.end - block > BLOCK ? block + BLOCK : text.end;
        Marks marks = marks_of(block, text.end, record.readable, marks_of_64);
        if (marks.backslashes || carried) {
            escapes = true;
            marks.quotes &= ~escaped_by(marks.backslashes, &carried);
        }
        uint64_t inside = odd_up_to(marks.quotes) ^ in_string;
        in_string = 0 - (inside >> 63);
        strings = (Strings){marks.quotes & inside, marks.quotes & ~inside, strings.begins};
        /* An escaped name has more bytes than its text. */
        if (names->few && !escapes) marks.colons = of_sizes(marks.colons, &strings, names);
        for (uint64_t left = (marks.colons | marks.opening | marks.closing) & ~inside; left; left &= left - 1) {
            uint64_t bit = left & -left;
            const uint8_t *here = block + __builtin_ctzll(left);
            if (marks.opening & bit) {
                if (depth++ == JSON_DEPTH) return JSON_NONE;
                continue;
            }
            if (marks.closing & bit) {
                if (--depth == 1 && member.at != SIZE_MAX) {
                    Piece piece = piece_of(member.begin, (size_t)(here + 1 - member.begin));
                    note(found, member.at * found->rows + record.number, found->buffer, piece, *member.begin == '{' ? JSON_OBJECT : JSON_ARRAY);
                    member.at = SIZE_MAX;
                }
                if (depth) continue;
                text.at = here + 1;
                skip_spaces(&text);
                return text.at == text.end ? JSON_OBJECT : JSON_NONE;
            }
            if (depth != 1) continue;
            uint64_t before = strings.begins & (bit - 1);
            Piece name;
            if (!name_of(before ? highest_of(block, before) : quote, here, &name)) return JSON_NONE;
            member.at = find_key_of(names, name, escapes && memchr(name.at, '\\', name.size) != NULL);
            if (member.at == SIZE_MAX) continue;
            text.at = here + 1;
            if (!read_value(&text, &member, record.number, found)) return JSON_NONE;
            if (text.at < next) continue;
            /* A long value need not be looked at again. */
            next = text.at;
            in_string = 0;
            carried = false;
            break;
        }
        if (strings.begins) quote = highest_of(block, strings.begins);
    }
    return JSON_NONE;
}

typedef uint8_t KnownMembers(Record record, Names *names, Found *found);

static uint8_t known_members_plain(Record record, Names *names, Found *found)
{
    return known_members_by(record, names, found, marks_plain);
}

static KnownMembers *known_members = known_members_plain;

#if defined(HAS_AVX2)
__attribute__((target("avx2"))) static uint8_t known_members_avx2(Record record, Names *names, Found *found)
{
    return known_members_by(record, names, found, marks_avx2);
}
#endif

void members_prepare(void)
{
#if defined(HAS_AVX2)
    if (__builtin_cpu_supports("avx2")) known_members = known_members_avx2;
#endif
}

/* The members of one row. The kind of its value; JSON_NONE: it is not JSON. `sure`: it is known to be JSON. */
static uint8_t members(Record record, bool sure, Names *names, Found *found)
{
    Text text = record.text;
    Piece piece = piece_of(text.at, 0);
    skip_spaces(&text);
    if (text.at == text.end || *text.at != '{') {
        uint8_t kind = value(&text, JSON_DEPTH, &piece);
        skip_spaces(&text);
        return text.at == text.end ? kind : JSON_NONE;
    }
    names->likely = 0;
    if (sure) {
        record.text = text;
        return known_members(record, names, found);
    }
    text.at++;
    for (bool first = true;; first = false) {
        skip_spaces(&text);
        if (next_is(&text, '}')) break;
        if (!first && !next_is(&text, ',')) return JSON_NONE;
        uint8_t kind = name(&text, &piece);
        if (kind == JSON_NONE) return JSON_NONE;
        size_t at = find_key_of(names, piece, kind == JSON_ESCAPED);
        kind = value(&text, JSON_DEPTH - 1, &piece);
        if (kind == JSON_NONE) return JSON_NONE;
        if (at != SIZE_MAX) note(found, at * found->rows + record.number, found->buffer, piece, kind);
    }
    skip_spaces(&text);
    return text.at == text.end ? JSON_OBJECT : JSON_NONE;
}

static void list_sizes(Names *names)
{
    const unsigned most = sizeof names->some / sizeof *names->some;
    for (size_t at = 0; at < names->count; at++) {
        size_t size = names->names[at].size;
        bool known = false;
        for (unsigned each = 0; each < names->few; each++) known |= names->some[each] == size;
        if (known) continue;
        if (names->few == most || size > BLOCK - 3) {
            names->few = 0;
            return;
        }
        names->some[names->few++] = (unsigned)size;
    }
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
        names->sizes |= size_bit((size_t)size);
    }
    list_sizes(names);
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
    /* Rows are far from each other when they are parts of records: a later one is requested from memory in time. */
    enum { AHEAD = 8 };
    if (row + AHEAD < spans->count) {
        uint64_t later = load64(spans->starts.piece.at + (row + AHEAD) * 8);
        if (later < spans->buffer.piece.size) __builtin_prefetch(spans->buffer.piece.at + later);
    }
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
    Names names = {NULL, 0, 0, 0, {0}, 0};
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
    const uint8_t *readable = spans.buffer.piece.at + spans.buffer.piece.size;
    size_t wrong = SIZE_MAX;
    PyThreadState *released = spans.buffer.piece.size >= RELEASE_BYTES ? PyEval_SaveThread() : NULL;
    for (size_t row = 0; row < spans.count; row++) {
        Piece piece;
        if (!span_at(&spans, row, &piece)) {
            wrong = row;
            break;
        }
        Record record = {{piece.at, piece.at + piece.size}, readable, row};
        forget(&found, row, names.count);
        uint8_t kind = members(record, sure != 0, &names, &found);
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

/* Where an element is, and the name of a member. */
typedef struct {
    Piece piece, name;
    uint8_t kind, name_kind;
} Element;

/* Elements of all rows. */
typedef struct {
    Element *all;
    size_t count, room;
} Elements;

static bool add_element(Elements *elements, Element element)
{
    if (elements->count == elements->room) {
        size_t room = elements->room * 2 + 64;
        Element *all = room > SIZE_MAX / sizeof *all ? NULL : realloc(elements->all, room * sizeof *all);
        if (all == NULL) return false;
        elements->all = all;
        elements->room = room;
    }
    elements->all[elements->count++] = element;
    return true;
}

/* Adds the elements of one array, or the members of one object; of anything else none. False: there is no memory. */
static bool add_elements(Text text, Elements *elements)
{
    const size_t before = elements->count;
    Element element = {piece_of(text.at, 0), piece_of(text.at, 0), JSON_NONE, JSON_NONE};
    skip_spaces(&text);
    if (text.at == text.end || (*text.at != '{' && *text.at != '[')) return true;
    const bool is_object = *text.at++ == '{';
    for (bool first = true;; first = false) {
        skip_spaces(&text);
        if (next_is(&text, is_object ? '}' : ']')) break;
        if (!first && !next_is(&text, ',')) goto unsound;
        if (is_object && (element.name_kind = name(&text, &element.name)) == JSON_NONE) goto unsound;
        element.kind = value(&text, JSON_DEPTH - 1, &element.piece);
        if (element.kind == JSON_NONE) goto unsound;
        if (!add_element(elements, element)) return false;
    }
    skip_spaces(&text);
    if (text.at == text.end) return true;
unsound:
    elements->count = before;
    return true;
}

/* (buffer, starts, ends) -> (counts, starts, ends, kinds, and of the names of members starts, ends, kinds) */
KERNEL_FUNCTION(kernel_json_elements)
{
    (void)module;
    Spans spans;
    if (!takes("json_elements", count, 3) || !hold_spans(args[0], args[1], args[2], &spans)) return NULL;
    PyObject *result = NULL, *columns[7] = {NULL};
    Out outs[7];
    Elements elements = {NULL, 0, 0};
    size_t wrong = SIZE_MAX;
    bool room = true;
    columns[0] = new_bytes(spans.count * 8, &outs[0]);
    if (columns[0] == NULL) goto done;
    PyThreadState *released = spans.buffer.piece.size >= RELEASE_BYTES ? PyEval_SaveThread() : NULL;
    for (size_t row = 0; row < spans.count && room; row++) {
        Piece piece;
        if (!span_at(&spans, row, &piece)) {
            wrong = row;
            break;
        }
        Text text = {piece.at, piece.at + piece.size};
        size_t before = elements.count;
        room = add_elements(text, &elements);
        store64(outs[0].at + row * 8, elements.count - before);
    }
    if (released) PyEval_RestoreThread(released);
    if (wrong != SIZE_MAX || !room) {
        if (room) outside(wrong);
        else PyErr_NoMemory();
        goto done;
    }
    for (int each = 1; each < 7; each++) {
        columns[each] = new_bytes(each % 3 ? elements.count * 8 : elements.count, &outs[each]);
        if (columns[each] == NULL) goto done;
    }
    Found found = {spans.buffer.piece.at, 0, (int64_t *)(void *)outs[1].at, (int64_t *)(void *)outs[2].at, outs[3].at};
    Found names = {spans.buffer.piece.at, 0, (int64_t *)(void *)outs[4].at, (int64_t *)(void *)outs[5].at, outs[6].at};
    for (size_t at = 0; at < elements.count; at++) {
        Element *element = &elements.all[at];
        note(&found, at, found.buffer, element->piece, element->kind);
        if (element->name_kind == JSON_NONE) element->name = piece_of(names.buffer, 0);
        note(&names, at, names.buffer, element->name, element->name_kind);
    }
    result = PyTuple_Pack(7, columns[0], columns[1], columns[2], columns[3], columns[4], columns[5], columns[6]);
done:
    free(elements.all);
    for (int each = 0; each < 7; each++) Py_XDECREF(columns[each]);
    let_go_spans(&spans);
    return result;
}
