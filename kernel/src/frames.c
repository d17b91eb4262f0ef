/* Works on existing frames: verifies, groups, sorts and cuts them. See kernel.scan, groups, by_topic, measure and cut.
 *
 *    log   segment   field                    A frame has frame_len + 4 bytes in both. The checksum, XXH3-64, is over the
 *    0     0         frame_len u32            bytes from the type on; a segment has no type byte, which counts as 1 there,
 *    4     -         type u8                  and behind the checksum one byte that says whether the record is deleted.
 *    5     4         flags u8
 *    6     5         topic_id u64
 *    14    13        seq u64
 *    22    21        ts u64
 *    30    29        node_len u16
 *    32    31        tag_len u16
 *    34    33        data_len u32
 *    38    37        node, tag, data; checksum u64
 */
#include "kernel.h"

#include <stdlib.h>

/* The numbers of kernel.REASONS; without memory there is no result. */
enum { END, SHORT, ZERO, LENGTH, CHECKSUM, DELETE, OTHER, FULL, NO_MEMORY };

typedef struct {
    const uint8_t *bytes;
    size_t start, stop;
    uint64_t max_frames, max_bytes; /* UINT64_MAX: any number */
    bool segment, verify, of_topic, in_order;
    uint64_t topic_id, first_seq;
} Query;

/* Checks the lengths of the frame at `at`. END: it is whole. Nothing at or after `stop` is read. */
static int read_lengths(const Query *query, size_t at, Row *row)
{
    size_t left = query->stop - at;
    if (left < OVERHEAD) return SHORT;
    const uint8_t *frame = query->bytes + at, *lengths = frame + (query->segment ? 29 : 30);
    row->node_len = load16(lengths);
    row->tag_len = load16(lengths + 2);
    row->data_len = load32(lengths + 4);
    uint64_t length = load32(frame), size = (uint64_t)OVERHEAD + row->node_len + row->tag_len + row->data_len;
    if (length + 4 != size) return length ? LENGTH : ZERO;
    if (size > left) return SHORT;
    if (size > UINT32_MAX) return LENGTH;
    row->size = (uint32_t)size;
    return END;
}

/* Reads the other fields of the whole frame at `at`, and checks that they are as written. */
static int read_frame(const Query *query, size_t at, Row *row)
{
    const uint8_t *frame = query->bytes + at, *fields = frame + (query->segment ? 4 : 5);
    row->offset = at;
    row->type = query->segment ? TYPE_APPEND : frame[4];
    row->flags = fields[0];
    row->topic_id = load64(fields + 1);
    row->seq = load64(fields + 9);
    row->ts = load64(fields + 17);
    row->header_len = query->segment ? SEGMENT_HEADER : LOG_HEADER;
    row->delete_byte = query->segment ? frame[row->size - 1] : LIVE;
    if (query->verify) {
        size_t sum_at = row->size - 8 - (query->segment ? 1 : 0);
        uint64_t sum = query->segment ? xxh3_64_first(frame + 3, sum_at - 3, TYPE_APPEND) : xxh3_64(frame + 4, sum_at - 4);
        if (sum != load64(frame + sum_at)) return CHECKSUM;
    }
    return row->delete_byte == LIVE || row->delete_byte == DELETED ? END : DELETE;
}

/* The rows of the frames that were found. */
typedef struct {
    Row *all;
    size_t count, room;
} Rows;

/* Room for another row of this size. If there is none yet, then for all, as if they had this size: to count them first
 * would wait for memory at each frame. */
static bool make_room(Rows *rows, size_t size, size_t left, uint64_t most)
{
    if (rows->count < rows->room) return true;
    size_t room = rows->room ? rows->room * 2 : left / size + 1;
    if (room > most) room = (size_t)most;
    Row *all = room > PY_SSIZE_T_MAX / ROW_SIZE ? NULL : realloc(rows->all, room * ROW_SIZE);
    if (all == NULL) return false;
    rows->all = all;
    rows->room = room;
    return true;
}

static int scan_frames(const Query *query, Rows *rows, size_t *end)
{
    size_t at = query->start;
    uint64_t total = 0; /* bytes of bodies: never more than the buffer has */
    int reason = END;
    while (at < query->stop) {
        Row row;
        if (rows->count >= query->max_frames) { reason = FULL; break; }
        if ((reason = read_lengths(query, at, &row)) != END) break;
        if (rows->count && total + row.data_len > query->max_bytes) { reason = FULL; break; }
        if ((reason = read_frame(query, at, &row)) != END) break;
        if ((query->of_topic && row.topic_id != query->topic_id)
            || (query->in_order && (row.type != TYPE_APPEND || row.seq != query->first_seq + rows->count))) {
            reason = OTHER;
            break;
        }
        if (!make_room(rows, row.size, query->stop - at, query->max_frames)) { reason = NO_MEMORY; break; }
        rows->all[rows->count++] = row;
        total += row.data_len;
        at += row.size;
    }
    *end = at;
    return reason;
}

static bool optional_number(PyObject *object, bool *given, uint64_t *number)
{
    *given = object != Py_None;
    return !*given || number_of(object, UINT64_MAX, number);
}

/* (buffer, kind, start, stop, max_frames, max_bytes, verify, topic_id, first_seq) -> (rows, end, reason) */
KERNEL_FUNCTION(kernel_scan)
{
    (void)module;
    uint64_t kind, start, stop, max_frames, max_bytes;
    Query query = {0};
    Held held;
    if (!takes("scan", count, 9) || !number_of(args[1], UINT64_MAX, &kind) || !number_of(args[4], PY_SSIZE_T_MAX, &max_frames)
        || !number_of(args[5], PY_SSIZE_T_MAX, &max_bytes) || !optional_number(args[7], &query.of_topic, &query.topic_id)
        || !optional_number(args[8], &query.in_order, &query.first_seq))
        return NULL;
    int verify = PyObject_IsTrue(args[6]);
    if (verify < 0 || !hold(args[0], &held)) return NULL;
    if (!number_of(args[2], held.piece.size, &start) || !number_of(args[3], held.piece.size, &stop) || start > stop || kind > 1) {
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError, "[%R, %R) of %zu bytes, frames of kind %R", args[2], args[3], held.piece.size, args[1]);
        let_go(&held);
        return NULL;
    }
    query.bytes = held.piece.at;
    query.start = (size_t)start;
    query.stop = (size_t)stop;
    query.max_frames = max_frames ? max_frames : UINT64_MAX;
    query.max_bytes = max_bytes ? max_bytes : UINT64_MAX;
    query.segment = kind == 1;
    query.verify = verify;
    Rows found = {NULL, 0, 0};
    size_t end = 0;
    PyThreadState *released = query.stop - query.start >= RELEASE_BYTES ? PyEval_SaveThread() : NULL;
    int reason = scan_frames(&query, &found, &end);
    if (released) PyEval_RestoreThread(released);
    let_go(&held);
    PyObject *rows = reason == NO_MEMORY ? PyErr_NoMemory() : PyBytes_FromStringAndSize((const char *)found.all, (Py_ssize_t)(found.count * ROW_SIZE));
    free(found.all);
    if (rows == NULL) return NULL;
    return Py_BuildValue("(Nni)", rows, (Py_ssize_t)end, reason);
}

/* -- bodies -------------------------------------------------------------------------------------------------------- */

enum { PLAIN_OVERHEAD = 9 }; /* {"data":} */

#define META_KEY ",\"meta\":"
#define DELIVER_AT_KEY ",\"deliver_at\":"
#define CT_KEY ",\"ct\":"
#define H_KEY ",\"h\":"

/* The bytes that a body counts for; -1: it is not a record. */
static int64_t payload_of(Piece body)
{
    if (body.size == 0) return -1;
    if (body.at[0] != '{') return body.size < PLAIN_OVERHEAD ? 0 : (int64_t)body.size - PLAIN_OVERHEAD;
    if (!has_key(body, META_KEY) && !has_key(body, DELIVER_AT_KEY))
        return body.size < PLAIN_OVERHEAD ? -1 : (int64_t)body.size - PLAIN_OVERHEAD;
    Parts parts;
    if (!split_object(body, &parts)) return -1;
    size_t size = parts.data.size + parts.meta.size;
    if (parts.ct.size) size += sizeof(CT_KEY) - 1 + parts.ct.size;
    if (parts.h.size) size += sizeof(H_KEY) - 1 + parts.h.size;
    return (int64_t)size;
}

/* The digits of a deliver_at at the end of a body; empty if it has none. */
static Piece deliver_at_of(Piece body)
{
    const size_t key = sizeof(DELIVER_AT_KEY) - 1;
    if (body.size < key + 2 || body.at[0] != '{') return piece_of(NULL, 0);
    size_t from = body.size > key + 21 ? body.size - key - 21 : 0, at = SIZE_MAX;
    for (size_t next = from; (next = find_key(body, next, DELIVER_AT_KEY, key)) != SIZE_MAX; next++) at = next;
    if (at == SIZE_MAX || at + key + 1 >= body.size) return piece_of(NULL, 0);
    Piece digits = piece_of(body.at + at + key, body.size - at - key - 1);
    for (size_t digit = 0; digit < digits.size; digit++) {
        if (digits.at[digit] < '0' || digits.at[digit] > '9') return piece_of(NULL, 0);
    }
    return digits;
}

static bool add_delayed(PyObject *list, size_t row, Piece digits)
{
    char text[24];
    if (digits.size >= sizeof text) return true;
    memcpy(text, digits.at, digits.size);
    text[digits.size] = 0;
    PyObject *time = PyLong_FromString(text, NULL, 10);
    if (time == NULL) return false;
    int counts = PyObject_IsTrue(time);
    PyObject *pair = counts > 0 ? Py_BuildValue("(nO)", (Py_ssize_t)row, time) : NULL;
    Py_DECREF(time);
    if (counts == 0) return true;
    if (pair == NULL) return false;
    int failed = PyList_Append(list, pair);
    Py_DECREF(pair);
    return !failed;
}

/* The payload of every row, the first row that is not a record (`bad`), and how many rows may have a deliver_at. */
static size_t measure_rows(Piece rows, const uint8_t *buffer, Out *out, Py_ssize_t *bad)
{
    size_t delayed = 0;
    for (size_t number = 0, all = row_count(rows); number < all; number++) {
        Row row = row_at(rows, number);
        Piece body = row_body(&row, buffer);
        int64_t payload = row.type == TYPE_APPEND ? payload_of(body) : 0;
        if (payload < 0) {
            payload = body.size < PLAIN_OVERHEAD ? 0 : (int64_t)body.size - PLAIN_OVERHEAD;
            if (*bad < 0) *bad = (Py_ssize_t)number;
        }
        uint32_t counted = (uint32_t)payload;
        out_bytes(out, &counted, 4);
        delayed += row.type == TYPE_APPEND && deliver_at_of(body).size != 0;
    }
    return delayed;
}

static PyObject *list_delayed(Piece rows, const uint8_t *buffer, size_t left)
{
    PyObject *list = PyList_New(0);
    for (size_t number = 0, all = row_count(rows); list && left && number < all; number++) {
        Row row = row_at(rows, number);
        Piece digits = row.type == TYPE_APPEND ? deliver_at_of(row_body(&row, buffer)) : piece_of(NULL, 0);
        if (digits.size == 0) continue;
        left--;
        if (!add_delayed(list, number, digits)) Py_CLEAR(list);
    }
    return list;
}

/* (buffer, rows) -> (payloads, [(row, deliver_at)], bad) */
KERNEL_FUNCTION(kernel_measure)
{
    (void)module;
    Held held, rows;
    if (!takes("measure", count, 2) || !hold(args[0], &held)) return NULL;
    if (!hold_rows(args[1], &rows)) {
        let_go(&held);
        return NULL;
    }
    Py_ssize_t bad = -1;
    Out out;
    PyObject *payloads = rows_fit(rows.piece, held.piece.size) ? new_bytes(4 * row_count(rows.piece), &out) : NULL, *delayed = NULL;
    if (payloads) {
        /* Large means much work: a few rows of a large buffer take less time than getting the lock back. */
        PyThreadState *released = rows.piece.size >= RELEASE_BYTES ? PyEval_SaveThread() : NULL;
        size_t found = measure_rows(rows.piece, held.piece.at, &out, &bad);
        if (released) PyEval_RestoreThread(released);
        delayed = list_delayed(rows.piece, held.piece.at, found);
    }
    let_go(&held);
    let_go(&rows);
    if (delayed == NULL) {
        Py_XDECREF(payloads);
        return NULL;
    }
    return Py_BuildValue("(NNn)", payloads, delayed, bad);
}

/* (buffer, rows, part) -> [bytes] */
KERNEL_FUNCTION(kernel_cut)
{
    (void)module;
    uint64_t part;
    Held held, rows;
    if (!takes("cut", count, 3)) return NULL;
    if (!number_of(args[2], 3, &part)) {
        PyErr_Clear();
        return PyErr_Format(PyExc_ValueError, "a frame has no part %R", args[2]);
    }
    if (!hold(args[0], &held)) return NULL;
    if (!hold_rows(args[1], &rows)) {
        let_go(&held);
        return NULL;
    }
    size_t all = row_count(rows.piece);
    PyObject *found = rows_fit(rows.piece, held.piece.size) ? PyList_New((Py_ssize_t)all) : NULL;
    for (size_t number = 0; found && number < all; number++) {
        Row row = row_at(rows.piece, number);
        Piece piece = part == 0   ? row_node(&row, held.piece.at)
                      : part == 1 ? row_tag(&row, held.piece.at)
                                  : row_body(&row, held.piece.at);
        if (part == 3 && !data_of(piece, &piece)) {
            PyErr_Format(PyExc_ValueError, "row %zu holds no record", number);
            Py_CLEAR(found);
            break;
        }
        PyObject *bytes = PyBytes_FromStringAndSize((const char *)piece.at, (Py_ssize_t)piece.size);
        if (bytes == NULL || PyList_SetItem(found, (Py_ssize_t)number, bytes)) Py_CLEAR(found);
    }
    let_go(&held);
    let_go(&rows);
    return found;
}
