/* SPDX-License-Identifier: Apache-2.0 */
/* The strict JSON reader (protocol section 0), libc and jansson's values: UTF-8 without BOM, no
 * duplicate member names, no lone surrogates, depth at most QV_JSON_DEPTH_MAX, one value and nothing after it.
 * What fails is refused, never repaired. Members that are unknown, missing or wrongly typed are qv_json_shape's. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define QV_JSON_INTEGER_MAX INT64_C(9007199254740991) /* 2^53 - 1 */

/* Why a text is refused: enumerator, text. */
#define QV_JSON_REASONS(X)                                     \
  X(QV_JSON_OK, "fine")                                        \
  X(QV_JSON_TOO_LONG, "longer than its cap")                   \
  X(QV_JSON_BOM, "starts with a byte order mark")              \
  X(QV_JSON_NOT_UTF8, "not valid UTF-8")                       \
  X(QV_JSON_SYNTAX, "not JSON")                                \
  X(QV_JSON_TRUNCATED, "ends within a value")                  \
  X(QV_JSON_TRAILING, "something after the value")             \
  X(QV_JSON_TOO_DEEP, "nested too deeply")                     \
  X(QV_JSON_CONTROL, "a control character in a string")        \
  X(QV_JSON_ESCAPE, "an unknown escape in a string")           \
  X(QV_JSON_SURROGATE, "half a surrogate pair")                \
  X(QV_JSON_NUL, "a NUL in a string")                          \
  X(QV_JSON_DUPLICATE, "a member name twice")                  \
  X(QV_JSON_NUMBER, "a number that JSON does not have")        \
  X(QV_JSON_NOT_INTEGER, "a fraction, an exponent or -0")      \
  X(QV_JSON_NUMBER_RANGE, "a number out of range")             \
  X(QV_JSON_MEMORY, "out of memory")

#define QV_JSON_ENUM(name, text) name,
typedef enum { QV_JSON_REASONS(QV_JSON_ENUM) } QvJsonReason;
#undef QV_JSON_ENUM

const char *qv_json_reason_name(QvJsonReason reason); /* "QV_JSON_OK" */
const char *qv_json_reason_text(QvJsonReason reason);

typedef enum {
  /* Our own documents: numbers are integers within +-(2^53 - 1), written without
   * fraction, exponent or -0; no string holds a NUL. Every number is a json_integer. */
  QV_JSON_SIGNED,
  /* Any I-JSON: also finite doubles (json_real: whatever is not a plain integer of that range)
   * and NUL in strings and names: take lengths from jansson, not strlen. */
  QV_JSON_ANY,
} QvJsonKind;

typedef struct {
  QvJsonReason reason;
  size_t offset; /* of the byte that decided */
} QvJsonError;

/* The value (the caller's to json_decref), or NULL with *ERROR set (may be NULL). TEXT needs no
 * final NUL; more than MAX_BYTES is refused before anything else is looked at. */
json_t *qv_json_parse(const void *text, size_t n, size_t max_bytes, QvJsonKind kind, QvJsonError *error);

/* Types a member may have, or-ed. */
enum {
  QV_JSON_STRING = 1 << 0,
  QV_JSON_INTEGER = 1 << 1,
  QV_JSON_BOOL = 1 << 2,
  QV_JSON_NULL = 1 << 3,
  QV_JSON_OBJECT = 1 << 4,
  QV_JSON_ARRAY = 1 << 5,
  QV_JSON_OPTIONAL = 1 << 8, /* may be absent */
};

typedef struct {
  const char *name;
  unsigned types;
} QvJsonMember;

/* True where OBJECT is an object whose members are exactly those of TABLE. Else false with *NAME (may be
 * NULL) set to the member of TABLE that is missing or wrongly typed, or "" where
 * OBJECT has an unknown one or is no object. */
bool qv_json_shape(const json_t *object, const QvJsonMember *table, size_t table_n, const char **name);
