/* How deep JSON text is nested, and whether it is UTF-8, in one walk. See kernel.check_json. */
#include "kernel.h"

/* Whether one of eight bytes in a string needs a closer look: a quote, a backslash, or a byte that is not ASCII. */
static inline bool is_special(uint64_t eight)
{
    const uint64_t ones = 0x0101010101010101ULL, highs = 0x8080808080808080ULL;
    uint64_t quote = eight ^ (ones * '"'), backslash = eight ^ (ones * '\\');
    /* A zero byte borrows from its high bit; so may one above a zero byte, which only costs a closer look. */
    return ((eight | ((quote - ones) & ~quote) | ((backslash - ones) & ~backslash)) & highs) != 0;
}

typedef struct {
    size_t depth;
    Py_ssize_t deep_at, invalid_at;
} Found;

static Found walk(Piece text, uint64_t max_depth)
{
    Found found = {0, -1, -1};
    size_t depth = 0;
    bool in_string = false;
    for (size_t at = 0; at < text.size;) {
        if (in_string) {
            while (text.size - at >= 8 && !is_special(load64(text.at + at))) at += 8;
            if (at == text.size) break;
        }
        uint8_t byte = text.at[at];
        if (byte >= 0x80) {
            size_t width = utf8_width(text.at + at, text.size - at);
            if (width == 0) {
                found.invalid_at = (Py_ssize_t)at;
                break;
            }
            at += width;
            continue;
        }
        at++;
        if (byte == '"') {
            in_string = !in_string;
        } else if (in_string) {
            /* The character after a backslash is not a quote. If it is not ASCII, it must still be checked. */
            if (byte == '\\' && at < text.size && text.at[at] < 0x80) at++;
        } else if (byte == '[' || byte == '{') {
            if (++depth > found.depth) found.depth = depth;
            if (depth > max_depth && found.deep_at < 0) found.deep_at = (Py_ssize_t)at - 1;
        } else if ((byte == ']' || byte == '}') && depth) {
            depth--;
        }
    }
    return found;
}

/* (body, max_depth) -> (depth, deep_at, invalid_at) */
KERNEL_FUNCTION(kernel_check_json)
{
    (void)module;
    uint64_t max_depth;
    Held held;
    if (!takes("check_json", count, 2) || !number_of(args[1], UINT64_MAX, &max_depth) || !hold(args[0], &held)) return NULL;
    PyThreadState *released = held.piece.size >= RELEASE_BYTES ? PyEval_SaveThread() : NULL;
    Found found = walk(held.piece, max_depth);
    if (released) PyEval_RestoreThread(released);
    let_go(&held);
    return Py_BuildValue("(nnn)", (Py_ssize_t)found.depth, found.deep_at, found.invalid_at);
}
