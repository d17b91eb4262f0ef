/* Segments: converts frames of the log for a .data, and makes the entries of an .idx. See kernel.to_segment,
 * build_index and parse_index.
 *
 *    off  size  field of an entry
 *    0    4     offset u32    of the frame in .data; without a record: of the next frame
 *    4    4     len u32       bytes of the frame; 0: no record
 *    8    8     ts u64        without a record: that of the entry before
 *    16   1     flags u8
 *    17   3     sum           low 24 bits of XXH3-64 over the 17 bytes before
 */
#include "kernel.h"

enum { ENTRY_SIZE = 20, SUMMED = 17, MAX_HOLES = 1 << 24 };

static void write_entry(uint8_t entry[ENTRY_SIZE], uint32_t offset, uint32_t size, uint64_t ts, uint8_t flags)
{
    store32(entry, offset);
    store32(entry + 4, size);
    store64(entry + 8, ts);
    entry[16] = flags;
    uint64_t sum = xxh3_64(entry, SUMMED);
    for (int byte = 0; byte < 3; byte++) entry[SUMMED + byte] = (uint8_t)(sum >> 8 * byte);
}

static void out_entry(Out *out, uint32_t offset, uint32_t size, uint64_t ts, uint8_t flags)
{
    uint8_t entry[ENTRY_SIZE];
    write_entry(entry, offset, size, ts, flags);
    out_bytes(out, entry, ENTRY_SIZE);
}

/* -- frames of the log --------------------------------------------------------------------------------------------- */

typedef struct {
    Piece buffer, rows;
    const uint8_t *dead; /* NULL: all live */
    uint64_t data_offset, next_seq, last_ts;
} Move;

/* Checks that the rows can be moved, and counts their bytes. False with a ValueError set. */
static bool measure_move(const Move *move, size_t *data_size, size_t *entries)
{
    uint64_t next_seq = move->next_seq, holes = 0, size = 0;
    for (size_t number = 0, all = row_count(move->rows); number < all; number++) {
        Row row = row_at(move->rows, number);
        const uint8_t *frame = move->buffer.at + row.offset;
        if (row.type != TYPE_APPEND || row.header_len != LOG_HEADER || load32(frame) != row.size - 4 || frame[4] != TYPE_APPEND) {
            PyErr_Format(PyExc_ValueError, "row %zu is no Append frame of the log", number);
            return false;
        }
        if (row.seq < next_seq || row.seq == UINT64_MAX) {
            PyErr_Format(PyExc_ValueError, "row %zu has seq %llu, which is less than %llu", number, (unsigned long long)row.seq, (unsigned long long)next_seq);
            return false;
        }
        if (row.seq - next_seq > MAX_HOLES - holes) {
            PyErr_Format(PyExc_ValueError, "more than %d seqs without a frame", (int)MAX_HOLES);
            return false;
        }
        holes += row.seq - next_seq;
        next_seq = row.seq + 1;
        if (move->dead && move->dead[number]) continue;
        size += row.size;
        if (size > UINT32_MAX - move->data_offset) {
            PyErr_Format(PyExc_ValueError, ".data would end at %llu, beyond 4294967295", (unsigned long long)(move->data_offset + size));
            return false;
        }
    }
    *data_size = (size_t)size;
    *entries = (size_t)holes + row_count(move->rows);
    return true;
}

static void make_move(const Move *move, Out *data, Out *index)
{
    uint64_t next_seq = move->next_seq, last_ts = move->last_ts;
    uint32_t at = (uint32_t)move->data_offset;
    for (size_t number = 0, all = row_count(move->rows); number < all; number++) {
        Row row = row_at(move->rows, number);
        const uint8_t *frame = move->buffer.at + row.offset;
        for (; next_seq < row.seq; next_seq++) out_entry(index, at, 0, last_ts, 0);
        next_seq = row.seq + 1;
        if (move->dead && move->dead[number]) {
            out_entry(index, at, 0, last_ts, 0);
            continue;
        }
        out_bytes(data, frame, 4);
        out_bytes(data, frame + 5, row.size - 5);
        out_byte(data, LIVE);
        out_entry(index, at, row.size, row.ts, row.flags & (FLAG_TAG | FLAG_NODE));
        at += row.size;
        last_ts = row.ts;
    }
}

static PyObject *moved(const Move *move)
{
    size_t size, entries;
    Out data_out, index_out;
    if (!rows_fit(move->rows, move->buffer.size) || !measure_move(move, &size, &entries)) return NULL;
    PyObject *data = new_bytes(size, &data_out);
    PyObject *index = data ? new_bytes(entries * ENTRY_SIZE, &index_out) : NULL;
    if (index == NULL) {
        Py_XDECREF(data);
        return NULL;
    }
    PyThreadState *released = size >= RELEASE_BYTES ? PyEval_SaveThread() : NULL;
    make_move(move, &data_out, &index_out);
    if (released) PyEval_RestoreThread(released);
    data = cut_bytes(data, &data_out);
    index = cut_bytes(index, &index_out);
    if (data && index) return Py_BuildValue("(NN)", data, index);
    Py_XDECREF(data);
    Py_XDECREF(index);
    return NULL;
}

/* (buffer, rows, data_offset, next_seq, last_ts, dead) -> (data, idx) */
KERNEL_FUNCTION(kernel_to_segment)
{
    (void)module;
    Move move = {0};
    Held held, rows, dead;
    bool has_dead = count == 6 && args[5] != Py_None;
    if (!takes("to_segment", count, 6) || !number_of(args[2], UINT32_MAX, &move.data_offset) || !number_of(args[3], UINT64_MAX, &move.next_seq)
        || !number_of(args[4], UINT64_MAX, &move.last_ts) || !hold(args[0], &held))
        return NULL;
    if (!hold_rows(args[1], &rows)) {
        let_go(&held);
        return NULL;
    }
    PyObject *result = NULL;
    if (!has_dead || hold_column(args[5], 1, row_count(rows.piece), "dead", &dead)) {
        move.buffer = held.piece;
        move.rows = rows.piece;
        move.dead = has_dead ? dead.piece.at : NULL;
        result = moved(&move);
        if (has_dead) let_go(&dead);
    }
    let_go(&held);
    let_go(&rows);
    return result;
}

/* -- entries ------------------------------------------------------------------------------------------------------- */

/* (lens, stamps, flags, data_offset, last_ts) -> idx */
KERNEL_FUNCTION(kernel_build_index)
{
    (void)module;
    uint64_t at, last_ts;
    Held lens, stamps, flags;
    if (!takes("build_index", count, 5) || !number_of(args[3], UINT32_MAX, &at) || !number_of(args[4], UINT64_MAX, &last_ts)
        || !hold_column(args[0], 4, SIZE_MAX, "lens", &lens))
        return NULL;
    size_t all = lens.piece.size / 4;
    if (!hold_column(args[1], 8, all, "stamps", &stamps)) {
        let_go(&lens);
        return NULL;
    }
    PyObject *index = NULL;
    if (hold_column(args[2], 1, all, "flags", &flags)) {
        Out out;
        index = all > PY_SSIZE_T_MAX / ENTRY_SIZE ? PyErr_NoMemory() : new_bytes(all * ENTRY_SIZE, &out);
        for (size_t number = 0; index && number < all; number++) {
            uint32_t size = load32(lens.piece.at + 4 * number);
            if (size > UINT32_MAX - at) {
                PyErr_Format(PyExc_ValueError, ".data would end at %llu, beyond 4294967295", (unsigned long long)(at + size));
                Py_CLEAR(index);
                break;
            }
            if (size) last_ts = load64(stamps.piece.at + 8 * number);
            out_entry(&out, (uint32_t)at, size, last_ts, size ? flags.piece.at[number] : 0);
            at += size;
        }
        let_go(&flags);
    }
    let_go(&lens);
    let_go(&stamps);
    return index;
}

/* (idx) -> (offsets, lens, stamps, flags, damaged) */
KERNEL_FUNCTION(kernel_parse_index)
{
    (void)module;
    Held held;
    if (!takes("parse_index", count, 1) || !hold(args[0], &held)) return NULL;
    size_t all = held.piece.size / ENTRY_SIZE;
    Py_ssize_t damaged = -1;
    Out offsets, lens, stamps, flags;
    PyObject *columns[4] = {NULL};
    if (!(columns[0] = new_bytes(4 * all, &offsets)) || !(columns[1] = new_bytes(4 * all, &lens))
        || !(columns[2] = new_bytes(8 * all, &stamps)) || !(columns[3] = new_bytes(all, &flags))) {
        for (int column = 0; column < 4; column++) Py_XDECREF(columns[column]);
        let_go(&held);
        return NULL;
    }
    for (size_t number = 0; number < all; number++) {
        const uint8_t *entry = held.piece.at + number * ENTRY_SIZE;
        uint64_t sum = xxh3_64(entry, SUMMED);
        uint32_t stored = (uint32_t)entry[17] | (uint32_t)entry[18] << 8 | (uint32_t)entry[19] << 16;
        if ((sum & 0xFFFFFF) != stored && damaged < 0) damaged = (Py_ssize_t)number;
        out_bytes(&offsets, entry, 4);
        out_bytes(&lens, entry + 4, 4);
        out_bytes(&stamps, entry + 8, 8);
        out_byte(&flags, entry[16]);
    }
    if (damaged < 0 && held.piece.size % ENTRY_SIZE) damaged = (Py_ssize_t)all;
    let_go(&held);
    return Py_BuildValue("(NNNNn)", columns[0], columns[1], columns[2], columns[3], damaged);
}
