/* Frames of the log as units: groups of frames, and complete units of data by topic. */
#include "kernel.h"

#include <stdlib.h>

enum { TYPE_BATCH = 12 };

/* -- units of data ------------------------------------------------------------------------------------------------- */

/* A MessagePack number of any width at the beginning of `piece`. False: there is none. */
static bool take_number(Piece *piece, uint64_t *number)
{
    if (piece->size == 0) return false;
    uint8_t form = piece->at[0];
    size_t width = form < 0x80 ? 0 : form >= 0xcc && form <= 0xcf ? (size_t)1 << (form - 0xcc) : SIZE_MAX;
    if (width == SIZE_MAX || piece->size - 1 < width) return false;
    *number = width ? 0 : form;
    for (size_t at = 1; at <= width; at++) *number = *number << 8 | piece->at[at];
    *piece = piece_of(piece->at + 1 + width, piece->size - 1 - width);
    return true;
}

/* MessagePack text or bytes. `first` is the form whose length has one byte; those with two and four bytes follow it. False:
 * there is none here. */
static bool take_sized(Piece *piece, uint8_t first, Piece *found)
{
    if (piece->size == 0) return false;
    uint8_t form = piece->at[0];
    bool in_form = first == 0xd9 && form >= 0xa0 && form <= 0xbf;
    size_t width = in_form ? 0 : form >= first && form <= first + 2 ? (size_t)1 << (form - first) : SIZE_MAX;
    if (width == SIZE_MAX || piece->size - 1 < width) return false;
    size_t size = in_form ? form & 0x1f : 0, left = piece->size - 1 - width;
    for (size_t at = 1; at <= width; at++) size = size << 8 | piece->at[at];
    if (size > left) return false;
    *found = piece_of(piece->at + 1 + width, size);
    *piece = piece_of(found->at + size, left - size);
    return true;
}

static bool take_key(Piece *piece, const char *key, size_t size)
{
    if (!begins_with(*piece, key, size)) return false;
    *piece = piece_of(piece->at + size, piece->size - size);
    return true;
}

#define KEY(piece, key) take_key((piece), (key), sizeof(key) - 1)

/* The content of a Batch frame with records. `at` of a piece is NULL if it is not there. */
typedef struct {
    uint64_t frames, bytes, first_seq, producer[3];
    Piece key, hash;
    bool sent; /* there is a producer */
} Said;

enum { DIGEST_SIZE = 16 };

/* False: the body has other fields, or another form than the writer's. */
static bool read_batch(Piece body, Said *said)
{
    if (body.size == 0) return false;
    uint8_t fields = body.at[0] - 0x83, found = 0;
    Piece rest = piece_of(body.at + 1, body.size - 1);
    *said = (Said){0};
    if (!KEY(&rest, "\xa6" "frames") || !take_number(&rest, &said->frames) || !KEY(&rest, "\xa5" "bytes")
        || !take_number(&rest, &said->bytes) || !KEY(&rest, "\xa9" "first_seq") || !take_number(&rest, &said->first_seq))
        return false;
    if (KEY(&rest, "\xa3" "key") && ++found && !(take_sized(&rest, 0xd9, &said->key) && utf8_valid(said->key))) return false;
    if (KEY(&rest, "\xa4" "hash") && ++found && !(take_sized(&rest, 0xc4, &said->hash) && said->hash.size == DIGEST_SIZE))
        return false;
    if (KEY(&rest, "\xa8" "producer\x93") && ++found) {
        said->sent = true;
        for (size_t at = 0; at < 3; at++) {
            if (!take_number(&rest, said->producer + at)) return false;
        }
    }
    return found == fields && rest.size == 0;
}

static inline bool is_data(const Row *row)
{
    return row->type == TYPE_APPEND && !(row->flags & FLAG_TAG) == (row->tag_len == 0);
}

/* How many rows from here on are a unit of data alone; 0: none. */
static size_t unit_of_data(Piece rows, size_t number, const uint8_t *buffer)
{
    Row opening = row_at(rows, number);
    if (!(opening.flags & FLAG_MORE)) return is_data(&opening);
    Said said;
    if (opening.type != TYPE_BATCH || !read_batch(row_body(&opening, buffer), &said)) return 0;
    uint64_t frames = said.frames, first_seq = said.first_seq, size = 0;
    if (frames == 0 || frames >= row_count(rows) - number || first_seq > UINT64_MAX - frames) return 0;
    uint64_t end = opening.offset + opening.size, ts = row_at(rows, number + 1).ts;
    for (size_t at = 0; at < frames; at++) {
        Row row = row_at(rows, number + 1 + at);
        bool more = row.flags & FLAG_MORE;
        if (!is_data(&row) || row.topic_id != opening.topic_id || row.ts != ts || row.seq != first_seq + at || row.offset != end
            || more != (at + 1 < frames))
            return 0;
        end += row.size;
        size += row.size;
    }
    return size == said.bytes ? (size_t)frames + 1 : 0;
}

/* -- groups -------------------------------------------------------------------------------------------------------- */

enum { CONTROL, BATCHED, DATA };

static bool add_group(PyObject *list, size_t first, size_t end, int kind)
{
    PyObject *group = Py_BuildValue("(nni)", (Py_ssize_t)first, (Py_ssize_t)end, kind);
    if (group == NULL) return false;
    int failed = PyList_Append(list, group);
    Py_DECREF(group);
    return !failed;
}

static PyObject *find_groups(Piece rows, const uint8_t *buffer, bool inside)
{
    PyObject *found = PyList_New(0);
    size_t first = 0, taken = 1, all = row_count(rows);
    int kind_before = -1;
    Row before = {0};
    for (size_t number = 0; found && number < all; number += taken) {
        Row row = row_at(rows, number);
        int kind = DATA;
        taken = inside ? 0 : unit_of_data(rows, number, buffer);
        if (taken == 0) {
            taken = 1;
            kind = row.type == TYPE_APPEND ? BATCHED : CONTROL;
        }
        bool goes_on = kind == kind_before
                       && (kind == DATA || (kind == BATCHED && inside && row.topic_id == before.topic_id && row.ts == before.ts
                                            && row.seq - 1 == before.seq && row.seq != 0));
        if (!goes_on) {
            if (number && !add_group(found, first, number, kind_before)) Py_CLEAR(found);
            first = number;
        }
        kind_before = kind;
        before = row;
        inside = kind != DATA && row.flags & FLAG_MORE;
    }
    if (found && all && !add_group(found, first, all, kind_before)) Py_CLEAR(found);
    return found;
}

/* (buffer, rows, inside) -> [(first, end, kind)] */
KERNEL_FUNCTION(kernel_groups)
{
    (void)module;
    Held held, rows;
    if (!takes("groups", count, 3)) return NULL;
    int inside = PyObject_IsTrue(args[2]);
    if (inside < 0 || !hold(args[0], &held)) return NULL;
    if (!hold_rows(args[1], &rows)) {
        let_go(&held);
        return NULL;
    }
    PyObject *found = rows_fit(rows.piece, held.piece.size) ? find_groups(rows.piece, held.piece.at, inside) : NULL;
    let_go(&held);
    let_go(&rows);
    return found;
}

/* -- topics -------------------------------------------------------------------------------------------------------- */

enum { SEQS, STAMPS, LSNS, LEADS, SIZES, PAYLOADS, TAG_SEQS, TAG_LENS, TAGS, COLUMNS };

/* Records with consecutive seqs of a log, and the units that they are in. */
typedef struct {
    uint64_t topic_id;
    size_t records, units, tagged, tag_bytes;
    PyObject *columns[COLUMNS];
    Out outs[COLUMNS];
    PyObject *keyed, *sent; /* lists of tuples; see kernel.Batches */
} List;

/* The list of a log that may be extended. */
typedef struct {
    uint64_t topic_id, last_seq;
    size_t list;
    bool used;
} Slot;

static inline size_t hash_topic(uint64_t topic_id, size_t mask)
{
    return (size_t)((topic_id * 0x9E3779B97F4A7C15ULL) >> 32) & mask;
}

/* Which list each row is in (SIZE_MAX: none, it is no Append), and whether a unit begins there; how many lists there are. */
static size_t assign_lists(Piece rows, Slot *slots, size_t mask, size_t *list_of, uint8_t *begins, List *lists)
{
    size_t found = 0;
    bool inside = false;
    for (size_t number = 0, all = row_count(rows); number < all; number++) {
        Row row = row_at(rows, number);
        list_of[number] = SIZE_MAX;
        begins[number] = !inside;
        inside = row.type == TYPE_APPEND && row.flags & FLAG_MORE;
        if (row.type != TYPE_APPEND) continue;
        size_t at = hash_topic(row.topic_id, mask);
        while (slots[at].used && slots[at].topic_id != row.topic_id) at = (at + 1) & mask;
        Slot *slot = slots + at;
        if (!slot->used || row.seq == 0 || slot->last_seq != row.seq - 1) {
            slot->used = true;
            slot->topic_id = row.topic_id;
            slot->list = found++;
            lists[slot->list].topic_id = row.topic_id;
            begins[number] = true;
        }
        slot->last_seq = row.seq;
        list_of[number] = slot->list;
        List *list = lists + slot->list;
        list->records++;
        list->units += begins[number];
        list->tagged += row.tag_len > 0;
        list->tag_bytes += row.tag_len;
    }
    return found;
}

static bool make_columns(List *list)
{
    size_t units = list->units, records = list->records;
    size_t sizes[COLUMNS] = {
        8 * units, 8 * units, 8 * units, 4 * units, 4 * records, 4 * records, 8 * list->tagged, 2 * list->tagged, list->tag_bytes,
    };
    for (size_t column = 0; column < COLUMNS; column++) {
        list->columns[column] = new_bytes(sizes[column], list->outs + column);
        if (list->columns[column] == NULL) return false;
    }
    list->keyed = PyList_New(0);
    list->sent = PyList_New(0);
    return list->keyed != NULL && list->sent != NULL;
}

static bool add_to(PyObject *list, PyObject *each)
{
    if (each == NULL) return false;
    int failed = PyList_Append(list, each);
    Py_DECREF(each);
    return !failed;
}

/* Adds what the Batch frame of a unit says beside the sizes. `first`: its first Append. */
static bool note(List *list, const Row *opening, const Row *first, const uint8_t *buffer)
{
    Said said;
    if (opening->type != TYPE_BATCH || !read_batch(row_body(opening, buffer), &said)) return true;
    unsigned long long seq = said.first_seq, records = said.frames, ts = first->ts;
    if (said.key.at
        && !add_to(list->keyed, Py_BuildValue("(KKKy#y#)", seq, records, ts, (const char *)said.key.at, (Py_ssize_t)said.key.size, said.hash.at ? (const char *)said.hash.at : "", (Py_ssize_t)said.hash.size)))
        return false;
    const uint64_t *producer = said.producer;
    return !said.sent
           || add_to(list->sent, Py_BuildValue("(KKKKKK)", seq, records, ts, (unsigned long long)producer[0], (unsigned long long)producer[1], (unsigned long long)producer[2]));
}

static bool fill_columns(Piece rows, const uint8_t *buffer, const size_t *list_of, const uint8_t *begins, List *lists, const uint8_t *payloads, uint64_t base)
{
    Row opening = {0};
    for (size_t number = 0, all = row_count(rows); number < all; number++) {
        Row row = row_at(rows, number);
        if (list_of[number] == SIZE_MAX) {
            opening = row;
            continue;
        }
        List *list = lists + list_of[number];
        Out *outs = list->outs;
        if (begins[number]) {
            if (opening.size && !note(list, &opening, &row, buffer)) return false;
            uint64_t lsn = base + row.offset;
            out_bytes(outs + SEQS, &row.seq, 8);
            out_bytes(outs + STAMPS, &row.ts, 8);
            out_bytes(outs + LSNS, &lsn, 8);
            out_bytes(outs + LEADS, &opening.size, 4);
        }
        out_bytes(outs + SIZES, &row.size, 4);
        out_bytes(outs + PAYLOADS, payloads + 4 * number, 4);
        if (row.tag_len) {
            out_bytes(outs + TAG_SEQS, &row.seq, 8);
            out_bytes(outs + TAG_LENS, &row.tag_len, 2);
            out_piece(outs + TAGS, row_tag(&row, buffer));
        }
        opening.size = 0;
    }
    return true;
}

static PyObject *list_of_columns(List *list)
{
    PyObject **columns = list->columns;
    return Py_BuildValue("(KOOOOOOOOOOO)", (unsigned long long)list->topic_id, columns[SEQS], columns[STAMPS], columns[LSNS], columns[LEADS], columns[SIZES], columns[PAYLOADS], columns[TAG_SEQS], columns[TAG_LENS], columns[TAGS], list->keyed, list->sent);
}

static PyObject *lists_of(Piece rows, const uint8_t *buffer, const uint8_t *payloads, uint64_t base, size_t *list_of, uint8_t *begins, List *lists, size_t found)
{
    for (size_t number = 0; number < found; number++) {
        if (!make_columns(lists + number)) return NULL;
    }
    if (!fill_columns(rows, buffer, list_of, begins, lists, payloads, base)) return NULL;
    PyObject *result = PyList_New((Py_ssize_t)found);
    for (size_t number = 0; result && number < found; number++) {
        PyObject *columns = list_of_columns(lists + number);
        if (columns == NULL || PyList_SetItem(result, (Py_ssize_t)number, columns)) Py_CLEAR(result);
    }
    return result;
}

/* (buffer, rows, payloads, base) -> of each list (topic_id, seqs, stamps, lsns, leads, sizes, payloads, seqs, lengths and text of tags, keyed, sent) */
KERNEL_FUNCTION(kernel_by_topic)
{
    (void)module;
    Held held, rows, payloads;
    uint64_t base;
    if (!takes("by_topic", count, 4) || !number_of(args[3], UINT64_MAX, &base) || !hold(args[0], &held)) return NULL;
    if (!hold_rows(args[1], &rows)) {
        let_go(&held);
        return NULL;
    }
    size_t all = row_count(rows.piece), mask = 15, found = 0;
    if (!rows_fit(rows.piece, held.piece.size) || !hold_column(args[2], 4, all, "payloads", &payloads)) {
        let_go(&held);
        let_go(&rows);
        return NULL;
    }
    while (mask < 2 * all) mask = mask * 2 + 1;
    Slot *slots = calloc(mask + 1, sizeof(Slot));
    List *lists = calloc(all + 1, sizeof(List));
    size_t *list_of = calloc(all + 1, sizeof(size_t));
    uint8_t *begins = calloc(all + 1, 1);
    PyObject *result = NULL;
    if (slots && lists && list_of && begins) {
        found = assign_lists(rows.piece, slots, mask, list_of, begins, lists);
        result = lists_of(rows.piece, held.piece.at, payloads.piece.at, base, list_of, begins, lists, found);
    } else {
        PyErr_NoMemory();
    }
    for (size_t number = 0; number < found; number++) {
        for (size_t column = 0; column < COLUMNS; column++) Py_XDECREF(lists[number].columns[column]);
        Py_XDECREF(lists[number].keyed);
        Py_XDECREF(lists[number].sent);
    }
    free(slots);
    free(lists);
    free(list_of);
    free(begins);
    let_go(&held);
    let_go(&rows);
    let_go(&payloads);
    return result;
}
