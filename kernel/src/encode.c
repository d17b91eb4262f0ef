/* Encodes Append frames of the log: of records, and of routed copies. See kernel.encode_appends and encode_copies.
 *
 * Sizes are counted first, so that all frames are written once, into the bytes that are returned.
 */
#include "kernel.h"

#include <stdlib.h>

/* kernel.Body: odd ones are binary. */
enum { JSON, AS_BINARY, STORED_JSON, STORED_BINARY };

static const char DATA[] = "{\"data\":", META[] = ",\"meta\":", DELIVER_AT[] = ",\"deliver_at\":";
static const char OPENING[] = "\x81\xd9\x01v\xc6"; /* of a MessagePack map of bytes alone; their length follows */

typedef struct {
    Piece data, meta, tag, node;
    uint64_t deliver_at;
    bool has_meta, has_deliver_at;
    uint8_t kind;
    uint32_t data_len, size; /* of the body, of the frame */
} Record;

/* The common fields of all frames. */
typedef struct {
    uint64_t topic_id, first_seq, ts;
    uint8_t flags;
    bool more, apart;
} Head;

/* -- records from Python ------------------------------------------------------------------------------------------- */

/* References that are held until the frames are made. */
typedef struct {
    Record *records;
    size_t count;
    PyObject *columns[5]; /* tuples: they hold what is in them */
    Py_buffer *views;     /* of what is not bytes */
    size_t viewed, room;
} Batch;

static void release(Batch *batch)
{
    for (size_t view = 0; view < batch->viewed; view++) PyBuffer_Release(batch->views + view);
    free(batch->views);
    free(batch->records);
    for (size_t column = 0; column < sizeof batch->columns / sizeof *batch->columns; column++) Py_XDECREF(batch->columns[column]);
}

static bool piece_from(Batch *batch, PyObject *object, Piece *piece)
{
    if (PyBytes_Check(object)) {
        *piece = piece_of(PyBytes_AsString(object), (size_t)PyBytes_Size(object));
        return true;
    }
    if (batch->viewed == batch->room) {
        size_t room = batch->room ? 2 * batch->room : 64;
        Py_buffer *views = realloc(batch->views, room * sizeof *views);
        if (views == NULL) {
            PyErr_NoMemory();
            return false;
        }
        batch->views = views;
        batch->room = room;
    }
    Py_buffer *view = batch->views + batch->viewed;
    if (PyObject_GetBuffer(object, view, PyBUF_SIMPLE)) return false;
    batch->viewed++;
    *piece = piece_of(view->buf ? view->buf : "", (size_t)view->len);
    return true;
}

/* A column as a tuple of `count` values; *column stays NULL if there is none. */
static bool column_of(PyObject *object, size_t count, PyObject **column)
{
    if (object == Py_None) return true;
    *column = PySequence_Tuple(object);
    if (*column == NULL) return false;
    Py_ssize_t size = PyTuple_Size(*column);
    if ((size_t)size == count) return true;
    PyErr_Format(PyExc_ValueError, "a column has %zd values, there are %zu records", size, count);
    return false;
}

static PyObject *value_at(PyObject *column, size_t number)
{
    PyObject *value = column ? PyTuple_GetItem(column, (Py_ssize_t)number) : NULL;
    return value == Py_None ? NULL : value;
}

static size_t decimal_size(uint64_t number)
{
    size_t size = 1;
    for (; number >= 10; number /= 10) size++;
    return size;
}

/* Counts the bytes of the record's frame. */
static bool measure_record(Record *record, size_t number)
{
    uint64_t size = record->data.size;
    if (record->kind != JSON && (record->has_meta || record->has_deliver_at)) {
        PyErr_SetString(PyExc_ValueError, "only a body made here of JSON takes a meta or a deliver_at");
        return false;
    }
    if (record->kind == JSON) size += sizeof DATA - 1 + 1;
    if (record->kind == AS_BINARY) size += sizeof OPENING - 1 + 4;
    if (record->has_meta) size += sizeof META - 1 + (uint64_t)record->meta.size;
    if (record->has_deliver_at) size += sizeof DELIVER_AT - 1 + decimal_size(record->deliver_at);
    if (record->tag.size > UINT16_MAX || record->node.size > UINT16_MAX) {
        PyErr_Format(PyExc_ValueError, "record %zu: a node or tag has more than 65,535 bytes", number);
        return false;
    }
    uint64_t whole = size + OVERHEAD + record->node.size + record->tag.size;
    if (whole > UINT32_MAX) {
        PyErr_Format(PyExc_ValueError, "record %zu: its frame would have %llu bytes, more than 4294967295", number, (unsigned long long)whole);
        return false;
    }
    record->data_len = (uint32_t)size;
    record->size = (uint32_t)whole;
    return true;
}

static bool read_record(Batch *batch, size_t number)
{
    Record *record = batch->records + number;
    PyObject *data = PyTuple_GetItem(batch->columns[0], (Py_ssize_t)number);
    PyObject *meta = value_at(batch->columns[1], number), *tag = value_at(batch->columns[2], number);
    PyObject *node = value_at(batch->columns[3], number), *deliver_at = value_at(batch->columns[4], number);
    if (!piece_from(batch, data, &record->data)) return false;
    if (meta && !piece_from(batch, meta, &record->meta)) return false;
    if (tag && !piece_from(batch, tag, &record->tag)) return false;
    if (node) {
        Piece own;
        if (!piece_from(batch, node, &own)) return false;
        if (own.size) record->node = own;
    }
    if (deliver_at && !number_of(deliver_at, UINT64_MAX, &record->deliver_at)) return false;
    record->has_meta = meta != NULL;
    record->has_deliver_at = deliver_at != NULL;
    return measure_record(record, number);
}

static bool seqs_end(uint64_t first_seq, size_t count)
{
    if (count == 0 || first_seq <= UINT64_MAX - (count - 1)) return true;
    PyErr_Format(PyExc_ValueError, "%zu seqs from %llu on end beyond 64 bits", count, (unsigned long long)first_seq);
    return false;
}

/* -- frames -------------------------------------------------------------------------------------------------------- */

/* The header of the frame, before the node. */
static void out_header(Out *out, const Head *head, size_t number, size_t count, uint8_t own, const uint32_t lengths[4])
{
    uint8_t header[LOG_HEADER];
    uint8_t more = !head->apart && (head->more || number + 1 < count) ? FLAG_MORE : 0;
    store32(header, lengths[0] - 4);
    header[4] = TYPE_APPEND;
    header[5] = head->flags | own | more;
    store64(header + 6, head->topic_id);
    store64(header + 14, head->first_seq + number);
    store64(header + 22, head->ts);
    store16(header + 30, (uint16_t)lengths[1]);
    store16(header + 32, (uint16_t)lengths[2]);
    store32(header + 34, lengths[3]);
    out_bytes(out, header, sizeof header);
}

/* The checksum of a frame of `size` bytes that is complete otherwise. */
static void out_checksum(Out *out, uint32_t size)
{
    if (!out_room(out, 8)) return;
    size_t covered = size - 4 - 8;
    store64(out->at, xxh3_64(out->at - covered, covered));
    out->at += 8;
}

static void out_body(Out *out, const Record *record)
{
    if (record->kind == JSON) {
        out_text(out, DATA);
        out_piece(out, record->data);
        if (record->has_meta) { out_text(out, META); out_piece(out, record->meta); }
        if (record->has_deliver_at) { out_text(out, DELIVER_AT); out_decimal(out, record->deliver_at); }
        out_byte(out, '}');
        return;
    }
    if (record->kind == AS_BINARY) {
        uint32_t size = __builtin_bswap32((uint32_t)record->data.size); /* MessagePack is big-endian */
        out_text(out, OPENING);
        out_bytes(out, &size, 4);
    }
    out_piece(out, record->data);
}

static void out_frames(Out *out, const Head *head, const Record *records, size_t count)
{
    for (size_t number = 0; number < count; number++) {
        const Record *record = records + number;
        if (!out_room(out, record->size)) return;
        uint8_t own = (uint8_t)((record->tag.size ? FLAG_TAG : 0) | (record->node.size ? FLAG_NODE : 0) | (record->kind & 1 ? FLAG_BINARY : 0));
        const uint32_t lengths[4] = {record->size, (uint32_t)record->node.size, (uint32_t)record->tag.size, record->data_len};
        out_header(out, head, number, count, own, lengths);
        out_piece(out, record->node);
        out_piece(out, record->tag);
        out_body(out, record);
        out_checksum(out, record->size);
    }
}

static bool head_of(PyObject *const *args, Head *head, PyObject *flags, PyObject *more, PyObject *apart)
{
    uint64_t bits;
    if (!number_of(args[0], UINT64_MAX, &head->topic_id) || !number_of(args[1], UINT64_MAX, &head->first_seq)
        || !number_of(args[2], UINT64_MAX, &head->ts) || !number_of(flags, UINT8_MAX, &bits))
        return false;
    int goes_on = PyObject_IsTrue(more), alone = PyObject_IsTrue(apart);
    head->flags = (uint8_t)bits;
    head->more = goes_on > 0;
    head->apart = alone > 0;
    return goes_on >= 0 && alone >= 0;
}

/* All arguments of kernel_encode_appends except `around`. */
static bool read_batch(PyObject *const *args, Batch *batch, Head *head)
{
    batch->columns[0] = PySequence_Tuple(args[0]);
    if (batch->columns[0] == NULL) return false;
    size_t count = (size_t)PyTuple_Size(batch->columns[0]);
    batch->count = count;
    batch->records = calloc(count + 1, sizeof(Record));
    if (batch->records == NULL) {
        PyErr_NoMemory();
        return false;
    }
    Piece node, tag = piece_of(NULL, 0), kinds = piece_of(NULL, 0);
    uint64_t kind;
    bool tag_of_all = args[2] != Py_None && PyObject_CheckBuffer(args[2]);
    if (!column_of(args[1], count, batch->columns + 1) || !column_of(args[3], count, batch->columns + 3)
        || !column_of(args[4], count, batch->columns + 4) || !number_of(args[6], UINT8_MAX, &kind)
        || !head_of(args + 7, head, args[11], args[12], args[13]) || !piece_from(batch, args[10], &node))
        return false;
    if (tag_of_all ? !piece_from(batch, args[2], &tag) : !column_of(args[2], count, batch->columns + 2)) return false;
    if (args[5] != Py_None) {
        if (!piece_from(batch, args[5], &kinds)) return false;
        if (kinds.size != count) {
            PyErr_Format(PyExc_ValueError, "a column has %zu values, there are %zu records", kinds.size, count);
            return false;
        }
    }
    if (!seqs_end(head->first_seq, count)) return false;
    for (size_t number = 0; number < count; number++) {
        Record *record = batch->records + number;
        record->kind = kinds.at ? kinds.at[number] : (uint8_t)kind;
        record->tag = tag;
        record->node = node;
        if (record->kind > STORED_BINARY) {
            PyErr_Format(PyExc_ValueError, "there is no body of kind %d", record->kind);
            return false;
        }
        if (!read_record(batch, number)) return false;
    }
    return true;
}

/* The bytes before and after the frames. The batch refers to both pieces; *answer keeps them alive. */
static bool ask_around(PyObject *around, Py_ssize_t total, Batch *batch, Piece *front, Piece *behind, PyObject **answer)
{
    *front = *behind = piece_of(NULL, 0);
    if (around == Py_None) return true;
    PyObject *given = PyObject_CallFunction(around, "n", total);
    if (given == NULL) return false;
    *answer = PySequence_Tuple(given);
    Py_DECREF(given);
    if (*answer == NULL) return false;
    if (PyTuple_Size(*answer) != 2) {
        PyErr_SetString(PyExc_ValueError, "around gives what stands in front and what stands behind");
        return false;
    }
    return piece_from(batch, PyTuple_GetItem(*answer, 0), front) && piece_from(batch, PyTuple_GetItem(*answer, 1), behind);
}

/* Sizes as u32, and their sum; SIZE_MAX if there is not enough memory. */
static PyObject *list_sizes(const Record *records, size_t count, size_t *total)
{
    Out out;
    PyObject *sizes = new_bytes(4 * count, &out);
    uint64_t sum = 0;
    for (size_t number = 0; sizes && number < count; number++) {
        out_bytes(&out, &records[number].size, 4);
        sum += records[number].size;
    }
    *total = sum > PY_SSIZE_T_MAX / 2 ? SIZE_MAX : (size_t)sum;
    return sizes;
}

/* (datas, metas, tags, nodes, deliver_ats, bodies, body, topic_id, first_seq, ts, node, flags, more, apart, around)
 * -> (frames, sizes) */
KERNEL_FUNCTION(kernel_encode_appends)
{
    (void)module;
    Batch batch = {0};
    Head head;
    PyObject *sizes = NULL, *frames = NULL, *answer = NULL;
    Piece front, behind;
    size_t total;
    Out out;
    if (!takes("encode_appends", count, 15)) return NULL;
    if (read_batch(args, &batch, &head) && (sizes = list_sizes(batch.records, batch.count, &total))
        && ask_around(args[14], (Py_ssize_t)total, &batch, &front, &behind, &answer)) {
        bool too_much = total == SIZE_MAX || front.size > PY_SSIZE_T_MAX / 8 || behind.size > PY_SSIZE_T_MAX / 8;
        frames = too_much ? PyErr_NoMemory() : new_bytes(front.size + total + behind.size, &out);
    }
    if (frames) {
        PyThreadState *released = total >= RELEASE_BYTES ? PyEval_SaveThread() : NULL;
        out_piece(&out, front);
        out_frames(&out, &head, batch.records, batch.count);
        out_piece(&out, behind);
        if (released) PyEval_RestoreThread(released);
        frames = cut_bytes(frames, &out);
    }
    release(&batch);
    Py_XDECREF(answer);
    if (frames == NULL) {
        Py_XDECREF(sizes);
        return NULL;
    }
    return Py_BuildValue("(NN)", frames, sizes);
}

/* -- copies -------------------------------------------------------------------------------------------------------- */

static void out_copies(Out *out, const Head *head, Piece rows, const uint8_t *buffer)
{
    size_t all = row_count(rows);
    for (size_t number = 0; number < all; number++) {
        Row row = row_at(rows, number);
        if (!out_room(out, row.size)) return;
        const uint32_t lengths[4] = {row.size, row.node_len, row.tag_len, row.data_len};
        out_header(out, head, number, all, row.flags & (FLAG_TAG | FLAG_NODE | FLAG_BINARY), lengths);
        /* Node, tag and body are adjacent, in the original and in the copy. */
        out_bytes(out, buffer + row.offset + row.header_len, row.size - OVERHEAD);
        out_checksum(out, row.size);
    }
}

/* (buffer, rows, topic_id, first_seq, ts, flags, more, apart) -> (frames, sizes) */
KERNEL_FUNCTION(kernel_encode_copies)
{
    (void)module;
    Head head;
    Held held, rows;
    if (!takes("encode_copies", count, 8) || !head_of(args + 2, &head, args[5], args[6], args[7]) || !hold(args[0], &held)) return NULL;
    if (!hold_rows(args[1], &rows)) {
        let_go(&held);
        return NULL;
    }
    size_t all = row_count(rows.piece), total = 0;
    Out out, size_out;
    PyObject *frames = NULL, *sizes = NULL;
    if (rows_fit(rows.piece, held.piece.size) && seqs_end(head.first_seq, all) && (sizes = new_bytes(4 * all, &size_out))) {
        for (size_t number = 0; number < all && total <= PY_SSIZE_T_MAX / 2; number++) {
            Row row = row_at(rows.piece, number);
            out_bytes(&size_out, &row.size, 4);
            total += row.size;
        }
        frames = total > PY_SSIZE_T_MAX / 2 ? PyErr_NoMemory() : new_bytes(total, &out);
    }
    if (frames) {
        PyThreadState *released = total >= RELEASE_BYTES ? PyEval_SaveThread() : NULL;
        out_copies(&out, &head, rows.piece, held.piece.at);
        if (released) PyEval_RestoreThread(released);
        frames = cut_bytes(frames, &out);
    }
    let_go(&held);
    let_go(&rows);
    if (frames == NULL) {
        Py_XDECREF(sizes);
        return NULL;
    }
    return Py_BuildValue("(NN)", frames, sizes);
}
