/* Shared by the files of the kernel: loading and storing bytes, rows, pieces, and bounded output.
 *
 * Three rules keep memory safe for any input:
 *   - a length is compared with the remaining bytes before it is used, and never added to an offset first;
 *   - all output is written through an Out, which knows where its space ends;
 *   - a row from a caller is trusted only after row_fits().
 */
#ifndef TOPICS_KERNEL_H
#define TOPICS_KERNEL_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The formats are little-endian and are copied, not converted. Big-endian machines use the Python version. */
#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the kernel is for little-endian machines, built by gcc or clang"
#endif

/* The version of arguments and results. kernel/plain.py must have the same. Raise both when one changes. */
enum { INTERFACE = 6 };

/* From this many bytes on the interpreter's lock is released. For fewer, taking it again costs more than the work. */
#define RELEASE_BYTES ((size_t)64 << 10)

enum {
    LOG_HEADER = 38,     /* bytes in front of the node of a frame of the log */
    SEGMENT_HEADER = 37, /* the same in a segment */
    OVERHEAD = 46,       /* a frame without node, tag and data, in either */
    TYPE_APPEND = 1,
    FLAG_TAG = 1,
    FLAG_NODE = 2,
    FLAG_MORE = 8,
    FLAG_BINARY = 16,
    LIVE = 0x00,
    DELETED = 0xD5,
};

/* -- loading and storing: unaligned, little-endian ----------------------------------------------------------------- */

static inline uint16_t load16(const uint8_t *at) { uint16_t value; memcpy(&value, at, 2); return value; }
static inline uint32_t load32(const uint8_t *at) { uint32_t value; memcpy(&value, at, 4); return value; }
static inline uint64_t load64(const uint8_t *at) { uint64_t value; memcpy(&value, at, 8); return value; }
static inline void store16(uint8_t *at, uint16_t value) { memcpy(at, &value, 2); }
static inline void store32(uint8_t *at, uint32_t value) { memcpy(at, &value, 4); }
static inline void store64(uint8_t *at, uint64_t value) { memcpy(at, &value, 8); }

/* -- pieces of memory ---------------------------------------------------------------------------------------------- */

/* Bytes that other code owns. */
typedef struct {
    const uint8_t *at;
    size_t size;
} Piece;

static inline Piece piece_of(const void *at, size_t size) { Piece piece = {(const uint8_t *)at, size}; return piece; }

static inline bool equals(Piece piece, const char *text, size_t size)
{
    return piece.size == size && memcmp(piece.at, text, size) == 0;
}

static inline bool begins_with(Piece piece, const char *text, size_t size)
{
    return piece.size >= size && memcmp(piece.at, text, size) == 0;
}

/* -- bounded output ------------------------------------------------------------------------------------------------ */

/* Space that is filled from the beginning. Bytes that do not fit are not written, and `full` is set. */
typedef struct {
    uint8_t *at;
    uint8_t *end;
    bool full;
} Out;

static inline bool out_room(Out *out, size_t size)
{
    if ((size_t)(out->end - out->at) >= size) return true;
    out->full = true;
    return false;
}

static inline void out_bytes(Out *out, const void *bytes, size_t size)
{
    if (size && out_room(out, size)) { memcpy(out->at, bytes, size); out->at += size; }
}

static inline void out_piece(Out *out, Piece piece) { out_bytes(out, piece.at, piece.size); }

static inline void out_byte(Out *out, uint8_t byte)
{
    if (out_room(out, 1)) *out->at++ = byte;
}

#define out_text(out, text) out_bytes((out), (text), sizeof(text) - 1)

void out_decimal(Out *out, uint64_t number);
void out_hex16(Out *out, uint64_t number);
void out_base64(Out *out, Piece piece);
/* A JSON string, escaped like msgspec does it. False: it is not UTF-8. */
bool out_quoted(Out *out, Piece text);

/* -- rows: see kernel/rows.py -------------------------------------------------------------------------------------- */

typedef struct {
    uint64_t offset, topic_id, seq, ts;
    uint32_t size, data_len;
    uint16_t node_len, tag_len;
    uint8_t type, flags, delete_byte, header_len;
} Row;

enum { ROW_SIZE = 48 };
_Static_assert(sizeof(Row) == ROW_SIZE, "rows are laid out as kernel/rows.py says");

static inline Row row_at(Piece rows, size_t number)
{
    Row row;
    memcpy(&row, rows.at + number * ROW_SIZE, ROW_SIZE);
    return row;
}

static inline size_t row_count(Piece rows) { return rows.size / ROW_SIZE; }

/* Whether the frame of a row, according to its lengths, is within a buffer of this many bytes. */
static inline bool row_fits(const Row *row, size_t buffer_size)
{
    uint64_t size = (uint64_t)OVERHEAD + row->node_len + row->tag_len + row->data_len;
    return (row->header_len == LOG_HEADER || row->header_len == SEGMENT_HEADER) && size == row->size
           && row->offset <= buffer_size && size <= buffer_size - row->offset;
}

static inline Piece row_node(const Row *row, const uint8_t *buffer)
{
    return piece_of(buffer + row->offset + row->header_len, row->node_len);
}

static inline Piece row_tag(const Row *row, const uint8_t *buffer)
{
    return piece_of(buffer + row->offset + row->header_len + row->node_len, row->tag_len);
}

static inline Piece row_body(const Row *row, const uint8_t *buffer)
{
    return piece_of(buffer + row->offset + row->header_len + row->node_len + row->tag_len, row->data_len);
}

/* Checks all rows against the buffer. False with a ValueError set. */
bool rows_fit(Piece rows, size_t buffer_size);

/* -- checksums ----------------------------------------------------------------------------------------------------- */

/* Chooses the code for this processor; once, when the module is loaded. */
void xxh3_prepare(void);
uint64_t xxh3_64(const uint8_t *input, size_t size);
/* The same for an input with another first byte than the one in memory. `size` is at least 1. */
uint64_t xxh3_64_first(const uint8_t *input, size_t size, uint8_t first);
uint32_t crc32c_of(const uint8_t *input, size_t size);
/* Fills the tables of crc32c_of; once, when the module is loaded. */
void crc32c_prepare(void);

/* -- text ---------------------------------------------------------------------------------------------------------- */

/* The size of the multi-byte UTF-8 character that begins here; 0: there is none. `left` is at least 1. */
size_t utf8_width(const uint8_t *at, size_t left);
bool utf8_valid(Piece text);
/* Where the key is in `text`, from `from` on; SIZE_MAX: nowhere. The key begins with a comma. */
size_t find_key(Piece text, size_t from, const char *key, size_t key_size);
#define has_key(text, key) (find_key((text), 0, (key), sizeof(key) - 1) != SIZE_MAX)

/* -- a stored body ------------------------------------------------------------------------------------------------- */

/* The values of a stored body, as written; `at` NULL: it has no such key. */
typedef struct {
    Piece data, meta, ct, h;
} Parts;

/* Of a JSON object. False: it is not one, or has no data. In values only brackets and strings are checked. */
bool split_object(Piece body, Parts *parts);
/* Value and meta of a MessagePack map; both may be empty. False: it is not a map. */
bool split_map(Piece body, Piece *value, Piece *meta);

/* How bodies end that have nothing behind data and meta: all that is stored for others than readers ends in a digit or
 * a bracket, and the brace. */
static inline bool ends_surely(Piece body)
{
    return body.size >= 2 && memchr("\"}el", body.at[body.size - 2], 4) != NULL;
}

/* The data of a stored body: JSON text without the spaces around it, or raw bytes. False: it is not a record. */
bool data_of(Piece body, Piece *data);

/* -- JSON text in spans of a buffer ---------------------------------------------------------------------------------- */

/* `kernel.JsonKind`. */
enum {
    JSON_NONE,
    JSON_NULL,
    JSON_FALSE,
    JSON_TRUE,
    JSON_INTEGER,
    JSON_NUMBER,
    JSON_TEXT,
    JSON_ESCAPED,
    JSON_ARRAY,
    JSON_OBJECT,
};

enum {
    JSON_DEPTH = 1024,      /* brackets within brackets */
    JSON_NAME_BYTES = 1024, /* of a member that is asked for */
};

/* Chooses the code for this processor; once, when the module is loaded. */
void members_prepare(void);
/* The text of a string without its escapes. False: it has half of a surrogate pair, or an unknown escape. */
bool out_unescaped(Out *out, Piece text);

/* -- functions of the module --------------------------------------------------------------------------------------- */

#define KERNEL_FUNCTION(name) PyObject *name(PyObject *module, PyObject *const *args, Py_ssize_t count)
KERNEL_FUNCTION(kernel_checksum);
KERNEL_FUNCTION(kernel_crc32c);
KERNEL_FUNCTION(kernel_encode_appends);
KERNEL_FUNCTION(kernel_encode_copies);
KERNEL_FUNCTION(kernel_scan);
KERNEL_FUNCTION(kernel_groups);
KERNEL_FUNCTION(kernel_by_topic);
KERNEL_FUNCTION(kernel_measure);
KERNEL_FUNCTION(kernel_cut);
KERNEL_FUNCTION(kernel_to_segment);
KERNEL_FUNCTION(kernel_build_index);
KERNEL_FUNCTION(kernel_parse_index);
KERNEL_FUNCTION(kernel_render_rows);
KERNEL_FUNCTION(kernel_render_records);
KERNEL_FUNCTION(kernel_render_jobs);
KERNEL_FUNCTION(kernel_render_job_rows);
KERNEL_FUNCTION(kernel_check_json);
KERNEL_FUNCTION(kernel_read_kafka);
KERNEL_FUNCTION(kernel_kafka_values);
KERNEL_FUNCTION(kernel_write_kafka);
KERNEL_FUNCTION(kernel_json_members);
KERNEL_FUNCTION(kernel_json_elements);
KERNEL_FUNCTION(kernel_json_texts);
KERNEL_FUNCTION(kernel_json_integers);
KERNEL_FUNCTION(kernel_json_decimals);
KERNEL_FUNCTION(kernel_json_moments);

/* Whether a function got this many arguments. False with a TypeError set. */
bool takes(const char *name, Py_ssize_t count, Py_ssize_t wanted);
/* An unsigned number of at most `most`. False with an error set. */
bool number_of(PyObject *object, uint64_t most, uint64_t *number);

/* The memory of a bytes-like object, exported until it is released. */
typedef struct {
    Py_buffer view;
    Piece piece;
} Held;

bool hold(PyObject *object, Held *held);
/* The same for a column: its size must be a multiple of `width`, with `wanted` values unless that is SIZE_MAX. */
bool hold_column(PyObject *object, size_t width, size_t wanted, const char *name, Held *held);
/* Rows: bytes objects, so their contents cannot change between the check of a row and its use. */
bool hold_rows(PyObject *object, Held *held);
static inline void let_go(Held *held) { PyBuffer_Release(&held->view); }

/* Pieces of a buffer, from `starts` to `ends` (u64). */
typedef struct {
    Held buffer, starts, ends;
    size_t count;
} Spans;

bool hold_spans(PyObject *buffer, PyObject *starts, PyObject *ends, Spans *spans);
/* One of them. False: it lies outside the buffer; `outside` then sets the error, and returns NULL. */
bool span_at(const Spans *spans, size_t row, Piece *piece);
PyObject *outside(size_t row);
void let_go_spans(Spans *spans);

/* A new bytes object to be filled; NULL with an error set. */
PyObject *new_bytes(size_t size, Out *out);
/* The same object, cut to the written size. Takes over the reference. NULL with an error set, also if the space was
 * too small, which is a bug of the code that counted. */
PyObject *cut_bytes(PyObject *bytes, Out *out);

#endif
