/* Record batches of Kafka, format v2 (magic 2). See kernel.read_kafka and write_kafka. Big-endian.
 *
 *    off  size  field                                   A record is, with signed varints for all its numbers:
 *    0    8     base_offset i64                           length, of what follows
 *    8    4     batch_length i32, of what follows         attributes u8
 *    12   4     partition_leader_epoch i32                time behind base_timestamp
 *    16   1     magic i8                                  offset behind base_offset
 *    17   4     crc u32, CRC-32C of what follows          length of the key (-1 = null), key
 *    21   2     attributes i16                            length of the value (-1 = null), value
 *    23   4     last_offset_delta i32                     count of headers; of each: length of its name, name,
 *    27   8     base_timestamp i64                                           length of its value (-1 = null), value
 *    35   8     max_timestamp i64
 *    43   8     producer_id i64
 *    51   2     producer_epoch i16
 *    53   4     base_sequence i32
 *    57   4     records_count i32
 *    61   .     records
 */
#include "kernel.h"

enum { BATCH_HEADER = 61, LOG_OVERHEAD = 12, CRC_AT = 17, ATTRIBUTES_AT = 21, LEAST_RECORD = 7, LONGEST_VARINT = 10 };

/* -- reading ------------------------------------------------------------------------------------------------------- */

typedef struct {
    const uint8_t *at, *end;
    const char *wrong; /* NULL while all is well */
} Reader;

static int64_t read_varint(Reader *reader)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 7 * LONGEST_VARINT; shift += 7) {
        if (reader->at == reader->end) {
            reader->wrong = "a record ends too early";
            return 0;
        }
        uint8_t byte = *reader->at++;
        if (shift == 63 && byte > 1) break;
        value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) return (int64_t)(value >> 1 ^ (0 - (value & 1)));
    }
    reader->wrong = "a number has more than 64 bits";
    return 0;
}

/* A field with its length; false: it is null, or something is wrong. */
static bool read_field(Reader *reader, Piece *field)
{
    int64_t size = read_varint(reader);
    if (reader->wrong || size < 0) return false;
    if ((uint64_t)size > (uint64_t)(reader->end - reader->at)) {
        reader->wrong = "a field is longer than its record";
        return false;
    }
    *field = piece_of(reader->at, (size_t)size);
    reader->at += size;
    return true;
}

/* A field as an object, None for null; NULL: something is wrong, or there is no memory. */
static PyObject *field_object(Reader *reader)
{
    Piece field;
    if (read_field(reader, &field)) return PyBytes_FromStringAndSize((const char *)field.at, (Py_ssize_t)field.size);
    if (reader->wrong) return NULL;
    Py_INCREF(Py_None);
    return Py_None;
}

static bool append(PyObject *list, PyObject *item)
{
    if (item == NULL) return false;
    int failed = PyList_Append(list, item);
    Py_DECREF(item);
    return !failed;
}

static PyObject *header_object(Reader *reader)
{
    Piece name;
    if (!read_field(reader, &name)) {
        if (!reader->wrong) reader->wrong = "a header has no name";
        return NULL;
    }
    PyObject *text = PyUnicode_DecodeUTF8((const char *)name.at, (Py_ssize_t)name.size, NULL);
    PyObject *value = text ? field_object(reader) : NULL;
    PyObject *pair = value ? Py_BuildValue("(OO)", text, value) : NULL;
    Py_XDECREF(text);
    Py_XDECREF(value);
    return pair;
}

/* The lists that are returned. */
typedef struct {
    PyObject *keys, *values, *headers;
    bool has_keys, has_headers;
    int64_t time_delta, offset_delta;
} Columns;

/* One record; the reader has exactly its bytes. False: an error of the reader or of Python. */
static bool read_record(Reader *reader, Columns *columns, uint64_t *headers_left)
{
    if (reader->at == reader->end) {
        reader->wrong = "a record ends too early";
        return false;
    }
    reader->at++; /* attributes: no bit has a meaning */
    columns->time_delta = read_varint(reader);
    if (reader->wrong) return false;
    columns->offset_delta = read_varint(reader);
    if (reader->wrong) return false;
    PyObject *key = field_object(reader);
    columns->has_keys = columns->has_keys || (key && key != Py_None);
    if (!append(columns->keys, key) || !append(columns->values, field_object(reader))) return false;
    int64_t number = read_varint(reader);
    if (reader->wrong) return false;
    if (number < 0) {
        reader->wrong = "a record has a negative number of headers";
        return false;
    }
    if ((uint64_t)number > *headers_left) {
        PyErr_SetString(PyExc_OverflowError, "the records have too many headers");
        return false;
    }
    *headers_left -= (uint64_t)number;
    columns->has_headers = columns->has_headers || number;
    PyObject *own = PyList_New(0);
    for (; own && number; number--) {
        if (!append(own, header_object(reader))) Py_CLEAR(own);
    }
    if (!append(columns->headers, own)) return false;
    if (reader->at != reader->end) reader->wrong = "a record is longer than its fields";
    return !reader->wrong;
}

static bool read_records(Piece records, size_t all, uint64_t max_headers, Columns *columns, Out *times, Out *offsets)
{
    const char *wrong = NULL;
    const uint8_t *at = records.at, *end = records.at + records.size;
    for (size_t number = 0; number < all && !wrong; number++) {
        Reader reader = {at, end, NULL};
        int64_t length = read_varint(&reader);
        if (!reader.wrong && (length < 0 || (uint64_t)length > (uint64_t)(end - reader.at))) reader.wrong = "a record is longer than what is left";
        if (!reader.wrong) {
            reader.end = at = reader.at + length;
            if (!read_record(&reader, columns, &max_headers) && !reader.wrong) return false; /* Python says why */
            out_bytes(times, &columns->time_delta, 8);
            out_bytes(offsets, &columns->offset_delta, 8);
        }
        wrong = reader.wrong;
    }
    if (!wrong && at != end) wrong = "there are bytes after the last record";
    if (wrong) PyErr_SetString(PyExc_ValueError, wrong);
    return !wrong;
}

static PyObject *list_or_none(PyObject *list, bool given)
{
    PyObject *object = given ? list : Py_None;
    Py_INCREF(object);
    return object;
}

/* (records, count, max_headers) -> (keys, values, headers, time_deltas, offset_deltas) */
KERNEL_FUNCTION(kernel_read_kafka)
{
    (void)module;
    uint64_t max_headers, all;
    Held held;
    if (!takes("read_kafka", count, 3) || !number_of(args[2], UINT64_MAX, &max_headers) || !hold(args[0], &held)) return NULL;
    if (!number_of(args[1], held.piece.size / LEAST_RECORD, &all)) {
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError, "%R records do not fit into %zu bytes", args[1], held.piece.size);
        let_go(&held);
        return NULL;
    }
    Out time_out, offset_out;
    Columns columns = {PyList_New(0), PyList_New(0), PyList_New(0), false, false, 0, 0};
    PyObject *times = new_bytes(8 * (size_t)all, &time_out), *offsets = times ? new_bytes(8 * (size_t)all, &offset_out) : NULL, *result = NULL;
    if (columns.keys && columns.values && columns.headers && offsets
        && read_records(held.piece, (size_t)all, max_headers, &columns, &time_out, &offset_out))
        result = Py_BuildValue("(NONOO)", list_or_none(columns.keys, columns.has_keys), columns.values,
                               list_or_none(columns.headers, columns.has_headers), times, offsets);
    Py_XDECREF(columns.keys);
    Py_XDECREF(columns.values);
    Py_XDECREF(columns.headers);
    Py_XDECREF(times);
    Py_XDECREF(offsets);
    let_go(&held);
    return result;
}

/* -- stored records for consumers ---------------------------------------------------------------------------------- */

static const char TWO_KEYS[] = "\x82\xd9\x01v\xc6", ALONE[] = "\x81\xd9\x01v\xc6", BINARY_CT[] = "\xa2" "ct\xd3", TEXT_CT[] = ",\"ct\":";

enum { TEXT_BEGIN = 8, MAP_BEGIN = 9, NO_TIME = -1 }; /* {"data": and the opening byte with the length after it */

static uint64_t load_big(const uint8_t *at, size_t bytes)
{
    uint64_t number = 0;
    for (size_t byte = 0; byte < bytes; byte++) number = number << 8 | at[byte];
    return number;
}

/* A map with a value alone, or a value and a create time. False: it has another form. */
static bool value_of_map(Piece body, bool noded, Piece *value, int64_t *stamp)
{
    const size_t stamped = sizeof BINARY_CT - 1 + 8;
    if (body.size < MAP_BEGIN) return false;
    uint64_t size = load_big(body.at + MAP_BEGIN - 4, 4), behind = body.size - MAP_BEGIN;
    *value = piece_of(body.at + MAP_BEGIN, (size_t)size);
    if (begins_with(body, ALONE, sizeof ALONE - 1)) return size == behind && !noded;
    if (!begins_with(body, TWO_KEYS, sizeof TWO_KEYS - 1) || behind < stamped || size != behind - stamped) return false;
    const uint8_t *end = body.at + MAP_BEGIN + size;
    if (memcmp(end, BINARY_CT, sizeof BINARY_CT - 1) != 0) return false;
    int64_t given = (int64_t)load_big(end + sizeof BINARY_CT - 1, 8);
    if (given != NO_TIME) *stamp = given;
    return true;
}

/* The same for an object. A create time of more than 18 digits takes the general path. */
static bool value_of_text(Piece body, bool noded, Piece *value, int64_t *stamp)
{
    if (!begins_with(body, "{\"data\":", TEXT_BEGIN) || body.size < TEXT_BEGIN + 1 || body.at[body.size - 1] != '}') return false;
    size_t end = body.size - 1, at = end;
    int64_t given = 0, scale = 1;
    for (; at > TEXT_BEGIN && end - at < 18 && body.at[at - 1] >= '0' && body.at[at - 1] <= '9'; at--, scale *= 10) given += scale * (body.at[at - 1] - '0');
    const size_t key = sizeof TEXT_CT - 1;
    bool negative = at < end && body.at[at - 1] == '-';
    size_t begin = at - negative;
    if (at < end && begin >= TEXT_BEGIN + key && memcmp(body.at + begin - key, TEXT_CT, key) == 0) {
        *value = piece_of(body.at + TEXT_BEGIN, begin - key - TEXT_BEGIN);
        *stamp = negative ? -given : given;
        return true;
    }
    *value = piece_of(body.at + TEXT_BEGIN, end - TEXT_BEGIN);
    return !noded && !has_key(body, ",\"meta\":") && !has_key(body, ",\"deliver_at\":") && !has_key(body, ",\"ct\":") && !has_key(body, ",\"h\":");
}

/* A value, or None if the body has another form. NULL with an error set. */
static PyObject *value_object(PyObject *body, PyObject *node, int64_t *stamp)
{
    if (!PyBytes_Check(body) || !PyBytes_Check(node)) return PyErr_Format(PyExc_TypeError, "bodies and nodes are bytes");
    Piece piece = piece_of(PyBytes_AsString(body), (size_t)PyBytes_Size(body)), value;
    bool noded = PyBytes_Size(node) > 0, text = piece.size && piece.at[0] == '{';
    if (text ? value_of_text(piece, noded, &value, stamp) : value_of_map(piece, noded, &value, stamp))
        return PyBytes_FromStringAndSize((const char *)value.at, (Py_ssize_t)value.size);
    Py_INCREF(Py_None);
    return Py_None;
}

static bool add_number(PyObject *list, size_t number) { return append(list, PyLong_FromSize_t(number)); }

/* (bodies, nodes, stamps) -> (values, stamps, odd) */
KERNEL_FUNCTION(kernel_kafka_values)
{
    (void)module;
    Held given;
    Out out;
    if (!takes("kafka_values", count, 3)) return NULL;
    PyObject *bodies = PySequence_Tuple(args[0]), *nodes = bodies ? PySequence_Tuple(args[1]) : NULL;
    PyObject *values = NULL, *odd = NULL, *stamps = NULL;
    size_t all = nodes ? (size_t)PyTuple_Size(bodies) : 0;
    if (nodes && (size_t)PyTuple_Size(nodes) != all)
        PyErr_Format(PyExc_ValueError, "a column has %zd values, there are %zu records", PyTuple_Size(nodes), all);
    else if (nodes && hold_column(args[2], 8, all, "stamps", &given)) {
        values = PyList_New(0);
        odd = PyList_New(0);
        stamps = values && odd ? new_bytes(8 * all, &out) : NULL;
        for (size_t number = 0; stamps && number < all; number++) {
            int64_t stamp = (int64_t)load64(given.piece.at + 8 * number);
            PyObject *value = value_object(PyTuple_GetItem(bodies, (Py_ssize_t)number), PyTuple_GetItem(nodes, (Py_ssize_t)number), &stamp);
            bool other = value == Py_None;
            out_bytes(&out, &stamp, 8);
            if (!append(values, value) || (other && !add_number(odd, number))) Py_CLEAR(stamps);
        }
        let_go(&given);
    }
    PyObject *result = stamps ? Py_BuildValue("(OOO)", values, stamps, odd) : NULL;
    Py_XDECREF(bodies);
    Py_XDECREF(nodes);
    Py_XDECREF(values);
    Py_XDECREF(odd);
    Py_XDECREF(stamps);
    return result;
}

/* -- writing ------------------------------------------------------------------------------------------------------- */

static inline uint64_t zigzag(int64_t number) { return (uint64_t)number << 1 ^ (uint64_t)(number >> 63); }

static size_t varint_size(int64_t number)
{
    size_t size = 1;
    for (uint64_t rest = zigzag(number) >> 7; rest; rest >>= 7) size++;
    return size;
}

static void out_varint(Out *out, int64_t number)
{
    uint64_t rest = zigzag(number);
    for (; rest > 0x7F; rest >>= 7) out_byte(out, (uint8_t)(rest | 0x80));
    out_byte(out, (uint8_t)rest);
}

static void out_big(Out *out, uint64_t number, int bytes)
{
    while (bytes-- > 0) out_byte(out, (uint8_t)(number >> 8 * bytes));
}

/* A field from Python: bytes or None. `wrong`: it is neither. */
static Piece field_from(PyObject *object, bool *null, bool *wrong)
{
    *null = object == Py_None;
    *wrong = !*null && !PyBytes_Check(object);
    if (*null || *wrong) return piece_of(NULL, 0);
    return piece_of(PyBytes_AsString(object), (size_t)PyBytes_Size(object));
}

/* Counts a field, and writes it where there is an `out`. False with an error set. */
static bool put_field(Out *out, PyObject *object, uint64_t *size)
{
    bool null, wrong;
    Piece field = field_from(object, &null, &wrong);
    if (wrong) {
        PyErr_SetString(PyExc_TypeError, "keys and values are bytes or None");
        return false;
    }
    int64_t length = null ? -1 : (int64_t)field.size;
    *size += varint_size(length) + field.size;
    if (out) { out_varint(out, length); out_piece(out, field); }
    return true;
}

/* (name, value) */
static bool put_header(Out *out, PyObject *object, uint64_t *size)
{
    Py_ssize_t length;
    if (!PyTuple_Check(object) || PyTuple_Size(object) != 2 || !PyUnicode_Check(PyTuple_GetItem(object, 0))) {
        PyErr_SetString(PyExc_TypeError, "a header is a tuple (name, value)");
        return false;
    }
    const char *name = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(object, 0), &length);
    if (name == NULL) return false;
    *size += varint_size(length) + (uint64_t)length;
    if (out) { out_varint(out, length); out_bytes(out, name, (size_t)length); }
    return put_field(out, PyTuple_GetItem(object, 1), size);
}

static bool put_headers(Out *out, PyObject *object, uint64_t *size)
{
    PyObject *own = object ? PySequence_Tuple(object) : PyTuple_New(0);
    if (own == NULL) return false;
    Py_ssize_t all = PyTuple_Size(own);
    *size += varint_size(all);
    if (out) out_varint(out, all);
    bool sound = true;
    for (Py_ssize_t number = 0; sound && number < all; number++) sound = put_header(out, PyTuple_GetItem(own, number), size);
    Py_DECREF(own);
    return sound;
}

typedef struct {
    PyObject *keys, *values, *headers; /* tuples; NULL: none */
    Held stamps, offset_deltas;
    size_t count;
} Source;

static int64_t signed_at(const Held *column, size_t number) { return (int64_t)load64(column->piece.at + 8 * number); }

/* The record after its length. The difference of two times wraps, as in the addition by readers. */
static bool put_record(Out *out, const Source *source, size_t number, uint64_t *size)
{
    int64_t time_delta = (int64_t)((uint64_t)signed_at(&source->stamps, number) - (uint64_t)signed_at(&source->stamps, 0));
    int64_t offset_delta = signed_at(&source->offset_deltas, number);
    Py_ssize_t at = (Py_ssize_t)number;
    *size += 1 + varint_size(time_delta) + varint_size(offset_delta);
    if (out) { out_byte(out, 0); out_varint(out, time_delta); out_varint(out, offset_delta); }
    return put_field(out, source->keys ? PyTuple_GetItem(source->keys, at) : Py_None, size)
           && put_field(out, PyTuple_GetItem(source->values, at), size)
           && put_headers(out, source->headers ? PyTuple_GetItem(source->headers, at) : NULL, size);
}

static bool put_records(Out *out, const Source *source, uint64_t *total)
{
    for (size_t number = 0; number < source->count; number++) {
        uint64_t size = 0;
        if (!put_record(NULL, source, number, &size)) return false;
        *total += varint_size((int64_t)size) + size;
        if (out == NULL) continue;
        out_varint(out, (int64_t)size);
        size = 0;
        if (!put_record(out, source, number, &size)) return false;
    }
    return true;
}

static PyObject *write_batch(const Source *source, int64_t base_offset, int64_t leader_epoch)
{
    uint64_t records = 0;
    Out out;
    if (!put_records(NULL, source, &records)) return NULL;
    if (records > INT32_MAX - BATCH_HEADER) return PyErr_Format(PyExc_ValueError, "a batch is larger than 2 GiB");
    PyObject *batch = new_bytes(BATCH_HEADER + (size_t)records, &out);
    if (batch == NULL) return NULL;
    uint8_t *bytes = out.at;
    int64_t last_stamp = signed_at(&source->stamps, 0);
    for (size_t number = 1; number < source->count; number++) {
        if (signed_at(&source->stamps, number) > last_stamp) last_stamp = signed_at(&source->stamps, number);
    }
    out_big(&out, (uint64_t)base_offset, 8);
    out_big(&out, BATCH_HEADER - LOG_OVERHEAD + records, 4);
    out_big(&out, (uint64_t)leader_epoch, 4);
    out_big(&out, 2, 1);                                    /* magic */
    out_big(&out, 0, 4 + 2);                                /* crc, attributes */
    out_big(&out, (uint64_t)signed_at(&source->offset_deltas, source->count - 1), 4);
    out_big(&out, (uint64_t)signed_at(&source->stamps, 0), 8);
    out_big(&out, (uint64_t)last_stamp, 8);
    out_big(&out, UINT64_MAX, 8);                           /* producer_id */
    out_big(&out, UINT64_MAX, 2 + 4);                       /* producer_epoch, base_sequence */
    out_big(&out, source->count, 4);
    records = 0;
    if (!put_records(&out, source, &records)) {
        Py_DECREF(batch);
        return NULL;
    }
    if (!out.full && out.at == out.end) {
        Out crc = {bytes + CRC_AT, bytes + CRC_AT + 4, false};
        out_big(&crc, crc32c_of(bytes + ATTRIBUTES_AT, (size_t)(out.end - bytes) - ATTRIBUTES_AT), 4);
    }
    return cut_bytes(batch, &out);
}

static bool tuple_of(PyObject *object, size_t count, PyObject **tuple)
{
    *tuple = NULL;
    if (object == Py_None) return true;
    *tuple = PySequence_Tuple(object);
    if (*tuple == NULL) return false;
    if ((size_t)PyTuple_Size(*tuple) == count) return true;
    PyErr_Format(PyExc_ValueError, "a column has %zd values, there are %zu records", PyTuple_Size(*tuple), count);
    return false;
}

/* A signed number with this many bits. */
static bool signed_of(PyObject *object, int bits, int64_t *number)
{
    long long value = PyLong_AsLongLong(object);
    if (value == -1 && PyErr_Occurred()) return false;
    if (bits < 64 && (value >= 1LL << (bits - 1) || value < -(1LL << (bits - 1)))) {
        PyErr_Format(PyExc_ValueError, "%lld has more than %d bits", value, bits);
        return false;
    }
    *number = value;
    return true;
}

/* (base_offset, offset_deltas, keys, values, headers, stamps, leader_epoch) -> batch */
KERNEL_FUNCTION(kernel_write_kafka)
{
    (void)module;
    int64_t base_offset, leader_epoch;
    Source source = {0};
    if (!takes("write_kafka", count, 7) || !signed_of(args[0], 64, &base_offset) || !signed_of(args[6], 32, &leader_epoch)) return NULL;
    source.values = PySequence_Tuple(args[3]);
    if (source.values == NULL) return NULL;
    source.count = (size_t)PyTuple_Size(source.values);
    PyObject *batch = NULL;
    if (source.count == 0) {
        PyErr_SetString(PyExc_ValueError, "a batch has at least one record");
    } else if (tuple_of(args[2], source.count, &source.keys) && tuple_of(args[4], source.count, &source.headers)
               && hold_column(args[1], 8, source.count, "offset_deltas", &source.offset_deltas)) {
        if (hold_column(args[5], 8, source.count, "stamps", &source.stamps)) {
            batch = write_batch(&source, base_offset, leader_epoch);
            let_go(&source.stamps);
        }
        let_go(&source.offset_deltas);
    }
    Py_XDECREF(source.keys);
    Py_XDECREF(source.values);
    Py_XDECREF(source.headers);
    return batch;
}
