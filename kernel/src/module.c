/* The module kernel._compiled: the table of its functions, and the conversion of arguments and results. */
#include "kernel.h"

bool takes(const char *name, Py_ssize_t count, Py_ssize_t wanted)
{
    if (count == wanted) return true;
    PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, not %zd", name, wanted, count);
    return false;
}

bool number_of(PyObject *object, uint64_t most, uint64_t *number)
{
    PyObject *whole = PyNumber_Index(object);
    if (whole == NULL) return false;
    unsigned long long value = PyLong_AsUnsignedLongLong(whole);
    Py_DECREF(whole);
    if (value == (unsigned long long)-1 && PyErr_Occurred()) return false;
    if (value > most) {
        PyErr_Format(PyExc_OverflowError, "%llu is more than %llu", value, (unsigned long long)most);
        return false;
    }
    *number = value;
    return true;
}

bool hold(PyObject *object, Held *held)
{
    if (PyObject_GetBuffer(object, &held->view, PyBUF_SIMPLE)) return false;
    held->piece = piece_of(held->view.buf ? held->view.buf : "", (size_t)held->view.len);
    return true;
}

bool hold_column(PyObject *object, size_t width, size_t wanted, const char *name, Held *held)
{
    if (!hold(object, held)) return false;
    if (held->piece.size % width == 0 && (wanted == SIZE_MAX || held->piece.size / width == wanted)) return true;
    PyErr_Format(PyExc_ValueError, "%s: %zu bytes, not %zu times %zu", name, held->piece.size, wanted == SIZE_MAX ? held->piece.size / width : wanted, width);
    let_go(held);
    return false;
}

bool hold_rows(PyObject *object, Held *held)
{
    if (PyBytes_Check(object)) return hold_column(object, ROW_SIZE, SIZE_MAX, "rows", held);
    PyErr_SetString(PyExc_TypeError, "rows are bytes");
    return false;
}

bool rows_fit(Piece rows, size_t buffer_size)
{
    for (size_t number = 0, all = row_count(rows); number < all; number++) {
        Row row = row_at(rows, number);
        if (!row_fits(&row, buffer_size)) {
            PyErr_Format(PyExc_ValueError, "row %zu lies outside the buffer", number);
            return false;
        }
    }
    return true;
}

PyObject *new_bytes(size_t size, Out *out)
{
    if (size > PY_SSIZE_T_MAX - 64) return PyErr_NoMemory();
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (bytes == NULL) return NULL;
    out->at = (uint8_t *)PyBytes_AsString(bytes);
    out->end = out->at + size;
    out->full = false;
    return bytes;
}

PyObject *cut_bytes(PyObject *bytes, Out *out)
{
    if (out->full) {
        Py_DECREF(bytes);
        PyErr_SetString(PyExc_RuntimeError, "the kernel has counted too little room");
        return NULL;
    }
    if (out->at == out->end) return bytes;
    /* The stable ABI cannot shrink bytes in place. */
    char *begin = PyBytes_AsString(bytes);
    PyObject *cut = PyBytes_FromStringAndSize(begin, (char *)out->at - begin);
    Py_DECREF(bytes);
    return cut;
}

KERNEL_FUNCTION(kernel_checksum)
{
    (void)module;
    Held held;
    if (!takes("checksum", count, 1) || !hold(args[0], &held)) return NULL;
    PyThreadState *released = held.piece.size >= RELEASE_BYTES ? PyEval_SaveThread() : NULL;
    uint64_t sum = xxh3_64(held.piece.at, held.piece.size);
    if (released) PyEval_RestoreThread(released);
    let_go(&held);
    return PyLong_FromUnsignedLongLong(sum);
}

KERNEL_FUNCTION(kernel_crc32c)
{
    (void)module;
    Held held;
    if (!takes("crc32c", count, 1) || !hold(args[0], &held)) return NULL;
    PyThreadState *released = held.piece.size >= RELEASE_BYTES ? PyEval_SaveThread() : NULL;
    uint32_t sum = crc32c_of(held.piece.at, held.piece.size);
    if (released) PyEval_RestoreThread(released);
    let_go(&held);
    return PyLong_FromUnsignedLong(sum);
}

#define FUNCTION(name) {#name, (PyCFunction)(void (*)(void))kernel_##name, METH_FASTCALL, PyDoc_STR("See kernel." #name ".")}

static PyMethodDef functions[] = {
    FUNCTION(checksum),
    FUNCTION(crc32c),
    FUNCTION(encode_appends),
    FUNCTION(encode_copies),
    FUNCTION(scan),
    FUNCTION(groups),
    FUNCTION(by_topic),
    FUNCTION(measure),
    FUNCTION(cut),
    FUNCTION(to_segment),
    FUNCTION(build_index),
    FUNCTION(parse_index),
    FUNCTION(render_rows),
    FUNCTION(render_records),
    FUNCTION(render_jobs),
    FUNCTION(render_job_rows),
    FUNCTION(check_json),
    FUNCTION(read_kafka),
    FUNCTION(kafka_values),
    FUNCTION(write_kafka),
    FUNCTION(json_members),
    FUNCTION(json_elements),
    FUNCTION(json_texts),
    FUNCTION(json_integers),
    FUNCTION(json_decimals),
    FUNCTION(json_moments),
    {NULL, NULL, 0, NULL},
};

static int prepare(PyObject *module)
{
    crc32c_prepare();
    xxh3_prepare();
    members_prepare();
    return PyModule_AddIntConstant(module, "INTERFACE", INTERFACE);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)(uintptr_t)prepare},
    {0, NULL},
};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "kernel._compiled",
    .m_doc = PyDoc_STR("Bytes of frames, by compiled code: see the package kernel."),
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__compiled(void) { return PyModuleDef_Init(&definition); }
