/* Records and jobs as JSON. See kernel.render_rows, render_records, render_jobs and render_job_rows.
 *
 * Space is allocated for the largest size of each row, so that all rows are written once.
 */
#include "kernel.h"

#include <stdlib.h>

enum { TAGS = 1, META = 2, DATA = 4, STORED = 8, WHOLE = META | DATA };

/* A record from frames or from Python. */
typedef struct {
    uint64_t seq, ts;
    Piece node, tag, body;
} Record;

/* The fields of a job besides its record; NULL for a record that is not a job. */
typedef struct {
    const uint8_t *lease_ids, *deadlines, *deliveries; /* u64 each */
} Jobs;

/* -- bodies -------------------------------------------------------------------------------------------------------- */

/* The body without the `,"key":digits` before the last brace. */
static Piece without_number(Piece body, const char *key, size_t key_size, size_t most_digits, bool negative)
{
    if (body.size < key_size + 2 || body.at[body.size - 1] != '}') return body;
    size_t at = body.size - 1, digits = 0;
    while (at > 0 && body.at[at - 1] >= '0' && body.at[at - 1] <= '9' && digits <= most_digits) { at--; digits++; }
    if (digits == 0 || digits > most_digits) return body;
    if (negative && at > 0 && body.at[at - 1] == '-') at--;
    if (at < key_size || memcmp(body.at + at - key_size, key, key_size) != 0) return body;
    return piece_of(body.at, at - key_size);
}

static void out_members(Out *out, Piece data, Piece meta)
{
    out_text(out, "\"data\":");
    out_piece(out, data);
    if (meta.size) { out_text(out, ",\"meta\":"); out_piece(out, meta); }
    out_byte(out, '}');
}

static void out_binary(Out *out, Piece value)
{
    out_text(out, "{\"$base64\":\"");
    out_base64(out, value);
    out_text(out, "\"}");
}

static const char CT[] = ",\"ct\":", DUE[] = ",\"deliver_at\":";

/* The members of a stored body's object that readers see, and the brace after them. False: it is not a record. */
static bool out_shown(Out *out, Piece body)
{
    if (body.size == 0 || body.at[0] != '{') {
        Piece value, meta;
        if (!split_map(body, &value, &meta)) return false;
        out_text(out, "\"data\":");
        out_binary(out, value);
        if (meta.size) { out_text(out, ",\"meta\":"); out_piece(out, meta); }
        out_byte(out, '}');
        return true;
    }
    if (ends_surely(body)) {
        out_bytes(out, body.at + 1, body.size - 1);
        return true;
    }
    if (has_key(body, ",\"h\":")) {
        Parts parts;
        if (!split_object(body, &parts)) return false;
        out_members(out, parts.data, parts.meta);
        return true;
    }
    Piece shown = without_number(body, CT, sizeof CT - 1, SIZE_MAX - 1, true);
    bool cut = shown.size != body.size;
    if (!cut) {
        shown = without_number(body, DUE, sizeof DUE - 1, 20, false);
        cut = shown.size != body.size;
    }
    if (shown.size == 0) return false;
    out_bytes(out, shown.at + 1, shown.size - 1);
    if (cut) out_byte(out, '}');
    return true;
}

/* The same for a shape that leaves out or adds parts. Each part begins with a comma. */
static bool out_parts(Out *out, Piece body, unsigned shape)
{
    Parts parts = {0};
    Piece value = piece_of(NULL, 0);
    bool binary = body.size == 0 || body.at[0] != '{';
    if (binary ? !split_map(body, &value, &parts.meta) : !split_object(body, &parts)) return false;
    if (shape & STORED) {
        /* Already written if the body is exactly {"data":…,"meta":…}. */
        size_t said = 9 + parts.data.size + (parts.meta.size ? 8 + parts.meta.size : 0);
        bool alike = !binary && said == body.size && begins_with(body, "{\"data\":", 8) && body.at[said - 1] == '}'
                     && parts.data.at == body.at + 8
                     && (parts.meta.size == 0
                         || (parts.meta.at == body.at + 16 + parts.data.size && memcmp(body.at + 8 + parts.data.size, ",\"meta\":", 8) == 0));
        if (!alike) {
            out_text(out, ",\"$stored\":\"");
            out_base64(out, body);
            out_byte(out, '"');
        }
    }
    if (shape & DATA) {
        out_text(out, ",\"data\":");
        if (binary) out_binary(out, value); else out_piece(out, parts.data);
    }
    if (shape & META && parts.meta.size) { out_text(out, ",\"meta\":"); out_piece(out, parts.meta); }
    out_byte(out, '}');
    return true;
}

/* -- rows ---------------------------------------------------------------------------------------------------------- */

/* The largest size of a row in bytes; SIZE_MAX: too large. */
static size_t room_of(const Record *record, unsigned shape)
{
    uint64_t room = 256 + 6 * ((uint64_t)record->node.size + record->tag.size) + record->body.size + 64;
    bool binary = record->body.size && record->body.at[0] != '{';
    if (binary) room += record->body.size;
    if (shape & STORED) room += 2 * (uint64_t)record->body.size;
    return room > PY_SSIZE_T_MAX / 4 ? SIZE_MAX : (size_t)room;
}

/* NULL, or what is wrong with the record. */
static const char *out_row(Out *out, const Record *record, unsigned shape, const Jobs *jobs, size_t number)
{
    out_text(out, "{\"$seq\":");
    out_decimal(out, record->seq);
    if (jobs) {
        out_text(out, ",\"lease_id\":\"lease_");
        out_hex16(out, load64(jobs->lease_ids + 8 * number));
        out_text(out, "\",\"deadline\":");
        out_decimal(out, load64(jobs->deadlines + 8 * number));
    }
    out_text(out, ",\"$ts\":");
    out_decimal(out, record->ts);
    if (record->node.size) {
        out_text(out, ",\"$node\":");
        if (!out_quoted(out, record->node)) return "its node is not UTF-8";
    }
    if (record->tag.size && shape & TAGS) {
        out_text(out, ",\"$tag\":");
        if (!out_quoted(out, record->tag)) return "its tag is not UTF-8";
    }
    if (jobs) {
        out_text(out, ",\"deliveries\":");
        out_decimal(out, load64(jobs->deliveries + 8 * number));
    }
    if ((shape & (WHOLE | STORED)) != WHOLE) return out_parts(out, record->body, shape) ? NULL : "its body is no record";
    out_byte(out, ',');
    return out_shown(out, record->body) ? NULL : "its body is no record";
}

/* -- frames -------------------------------------------------------------------------------------------------------- */

static Record record_of(const Row *row, const uint8_t *buffer)
{
    Record record = {row->seq, row->ts, row_node(row, buffer), row_tag(row, buffer), row_body(row, buffer)};
    return record;
}

static PyObject *render_frames(Piece buffer, Piece rows, unsigned shape, const Jobs *jobs)
{
    size_t all = row_count(rows), room = 0, number = 0;
    Out out;
    if (!rows_fit(rows, buffer.size)) return NULL;
    for (size_t at = 0; at < all; at++) {
        Row row = row_at(rows, at);
        Record record = record_of(&row, buffer.at);
        size_t more = room_of(&record, shape);
        if (more > PY_SSIZE_T_MAX - room) return PyErr_NoMemory();
        room += more;
    }
    PyObject *text = new_bytes(room, &out);
    if (text == NULL) return NULL;
    const char *wrong = NULL;
    PyThreadState *released = room >= RELEASE_BYTES ? PyEval_SaveThread() : NULL;
    for (; number < all && wrong == NULL; number++) {
        Row row = row_at(rows, number);
        Record record = record_of(&row, buffer.at);
        if (number) out_byte(&out, ',');
        wrong = out_row(&out, &record, shape, jobs, number);
    }
    if (released) PyEval_RestoreThread(released);
    if (wrong) {
        Py_DECREF(text);
        return PyErr_Format(PyExc_ValueError, "record %zu: %s", number - 1, wrong);
    }
    return cut_bytes(text, &out);
}

/* (buffer, rows, shape) -> text */
KERNEL_FUNCTION(kernel_render_rows)
{
    (void)module;
    uint64_t shape;
    Held held, rows;
    if (!takes("render_rows", count, 3) || !number_of(args[2], 15, &shape) || !hold(args[0], &held)) return NULL;
    PyObject *text = NULL;
    if (hold_rows(args[1], &rows)) {
        text = render_frames(held.piece, rows.piece, (unsigned)shape, NULL);
        let_go(&rows);
    }
    let_go(&held);
    return text;
}

/* Three columns of u64 each. */
typedef struct {
    Held columns[3];
    Jobs jobs;
} HeldJobs;

static bool hold_jobs(PyObject *const *args, size_t all, HeldJobs *held)
{
    static const char *const NAMES[3] = {"lease_ids", "deadlines", "deliveries"};
    for (int column = 0; column < 3; column++) {
        if (hold_column(args[column], 8, all, NAMES[column], held->columns + column)) continue;
        while (column-- > 0) let_go(held->columns + column);
        return false;
    }
    held->jobs.lease_ids = held->columns[0].piece.at;
    held->jobs.deadlines = held->columns[1].piece.at;
    held->jobs.deliveries = held->columns[2].piece.at;
    return true;
}

static void let_jobs_go(HeldJobs *held)
{
    for (int column = 0; column < 3; column++) let_go(held->columns + column);
}

/* (buffer, rows, lease_ids, deadlines, deliveries) -> text */
KERNEL_FUNCTION(kernel_render_job_rows)
{
    (void)module;
    Held held, rows;
    HeldJobs jobs;
    if (!takes("render_job_rows", count, 5) || !hold(args[0], &held)) return NULL;
    PyObject *text = NULL;
    if (hold_rows(args[1], &rows)) {
        if (hold_jobs(args + 2, row_count(rows.piece), &jobs)) {
            text = render_frames(held.piece, rows.piece, TAGS | WHOLE, &jobs.jobs);
            let_jobs_go(&jobs);
        }
        let_go(&rows);
    }
    let_go(&held);
    return text;
}

/* -- records of Python --------------------------------------------------------------------------------------------- */

static bool bytes_of(PyObject *object, Piece *piece)
{
    if (object == NULL || !PyBytes_Check(object)) {
        if (object) PyErr_SetString(PyExc_TypeError, "node, tag and body of a record are bytes");
        return false;
    }
    *piece = piece_of(PyBytes_AsString(object), (size_t)PyBytes_Size(object));
    return true;
}

/* A tuple (seq, ts, node, tag, body), which keeps all of it. */
static bool record_from(PyObject *object, Record *record)
{
    if (!PyTuple_Check(object) || PyTuple_Size(object) != 5) {
        PyErr_SetString(PyExc_TypeError, "a record is a tuple (seq, ts, node, tag, body)");
        return false;
    }
    return number_of(PyTuple_GetItem(object, 0), UINT64_MAX, &record->seq) && number_of(PyTuple_GetItem(object, 1), UINT64_MAX, &record->ts)
           && bytes_of(PyTuple_GetItem(object, 2), &record->node) && bytes_of(PyTuple_GetItem(object, 3), &record->tag)
           && bytes_of(PyTuple_GetItem(object, 4), &record->body);
}

static PyObject *render_list(PyObject *tuple, unsigned shape, const Jobs *jobs)
{
    size_t all = (size_t)PyTuple_Size(tuple), room = 0, number = 0;
    Out out;
    Record *records = calloc(all + 1, sizeof(Record));
    if (records == NULL) return PyErr_NoMemory();
    PyObject *text = NULL;
    for (; number < all; number++) {
        if (!record_from(PyTuple_GetItem(tuple, (Py_ssize_t)number), records + number)) break;
        size_t more = room_of(records + number, shape);
        if (more > PY_SSIZE_T_MAX - room) { PyErr_NoMemory(); break; }
        room += more;
    }
    if (number == all) text = new_bytes(room, &out);
    if (text) {
        const char *wrong = NULL;
        PyThreadState *released = room >= RELEASE_BYTES ? PyEval_SaveThread() : NULL;
        for (number = 0; number < all && wrong == NULL; number++) {
            if (number) out_byte(&out, ',');
            wrong = out_row(&out, records + number, shape, jobs, number);
        }
        if (released) PyEval_RestoreThread(released);
        if (wrong) {
            Py_CLEAR(text);
            PyErr_Format(PyExc_ValueError, "record %zu: %s", number - 1, wrong);
        } else {
            text = cut_bytes(text, &out);
        }
    }
    free(records);
    return text;
}

/* (records, shape) -> text */
KERNEL_FUNCTION(kernel_render_records)
{
    (void)module;
    uint64_t shape;
    if (!takes("render_records", count, 2) || !number_of(args[1], 15, &shape)) return NULL;
    PyObject *tuple = PySequence_Tuple(args[0]);
    if (tuple == NULL) return NULL;
    PyObject *text = render_list(tuple, (unsigned)shape, NULL);
    Py_DECREF(tuple);
    return text;
}

/* (records, lease_ids, deadlines, deliveries) -> text */
KERNEL_FUNCTION(kernel_render_jobs)
{
    (void)module;
    HeldJobs jobs;
    if (!takes("render_jobs", count, 4)) return NULL;
    PyObject *tuple = PySequence_Tuple(args[0]), *text = NULL;
    if (tuple == NULL) return NULL;
    if (hold_jobs(args + 1, (size_t)PyTuple_Size(tuple), &jobs)) {
        text = render_list(tuple, TAGS | WHOLE, &jobs.jobs);
        let_jobs_go(&jobs);
    }
    Py_DECREF(tuple);
    return text;
}
