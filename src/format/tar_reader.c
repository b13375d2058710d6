/* SPDX-License-Identifier: Apache-2.0 */
/* The strict reader of protocol section 4's tar.
 *
 *   HEADER ─ '0' ──────────────────────────── DATA ─ PADDING ─ HEADER
 *      │  └─ 'x' ─ PAX (body) ─ LONG ('0') ────┘
 *      └─ zeros ─ ZERO (zeros) ─ END
 *
 * Everything before a file's data gathers in `blocks`, so that a header is judged whole. A refusal is for good.
 *
 * Strict beyond the profile's values where two readers could differ (numbers have one form, unused fields
 * are zero, padding is zero, an extended header only for a path that needs it); values that mean
 * nothing here (owner ids, times, the other bits of mode) are ignored, as long as they are octal.
 *
 * A path may come once, and may not be a file and a folder. The set holds 64-bit hashes of paths, not paths:
 * equal paths always meet, two different ones that met would refuse an archive that is fine, once in
 * 10^8 archives of the largest kind. */
#include <stdlib.h>
#include <string.h>

#include "format/tar.h"
#include "format/tar_layout.h"

enum { HEADER, PAX, LONG, DATA, PADDING, ZERO, END, BAD };

/* Folders count as well: deep paths must not cost unbounded memory. */
enum { NAMES_EACH_MAX = 8, NAMES_FREE = 4096 };

void qv_tar_reader_init(QvTarReader *reader, const QvTarCaps *caps)
{
  memset(reader, 0, sizeof *reader);
  reader->caps = *caps;
  reader->state = HEADER;
}

void qv_tar_reader_clear(QvTarReader *reader)
{
  free(reader->names);
  reader->names = NULL;
  reader->names_n = reader->names_cap = 0;
}

static QvTarEvent refuse(QvTarReader *reader, QvTarReason reason)
{
  reader->state = BAD;
  reader->reason = reason;
  return QV_TAR_BAD;
}

/* ---- the set of names ---- */

static uint64_t hash_of(const char *path, size_t n, char kind)
{
  /* The kind is mixed in first: a path's own first byte must not undo it. */
  uint64_t h = (0xcbf29ce484222325u ^ (uint8_t)kind) * 0xd6e8feb86659fd93u;
  for (size_t i = 0; i < n; i++) {
    h = (h ^ (uint8_t)path[i]) * 0x100000001b3u;
    h ^= h >> 29;
  }
  h = (h ^ (h >> 32)) * 0xd6e8feb86659fd93u;
  h ^= h >> 32;
  return h ? h : 1; /* 0 is a free slot */
}

static uint64_t *slot_of(uint64_t *names, size_t cap, uint64_t hash)
{
  size_t i = (size_t)hash & (cap - 1);
  while (names[i] != 0 && names[i] != hash)
    i = (i + 1) & (cap - 1);
  return &names[i];
}

static bool grow(QvTarReader *reader)
{
  size_t cap = reader->names_cap ? reader->names_cap * 2 : 256;
  uint64_t *names = calloc(cap, sizeof *names);
  if (!names)
    return false;
  for (size_t i = 0; i < reader->names_cap; i++) {
    if (reader->names[i])
      *slot_of(names, cap, reader->names[i]) = reader->names[i];
  }
  free(reader->names);
  reader->names = names;
  reader->names_cap = cap;
  return true;
}

static bool has_name(const QvTarReader *reader, const char *path, size_t n, char kind)
{
  return reader->names_cap != 0 && *slot_of(reader->names, reader->names_cap, hash_of(path, n, kind)) != 0;
}

/* One that is not there yet. */
static QvTarReason add_name(QvTarReader *reader, const char *path, size_t n, char kind)
{
  if (reader->names_n / NAMES_EACH_MAX >= reader->caps.entries_max && reader->names_n >= NAMES_FREE)
    return QV_TAR_ENTRIES_CAP;
  if (reader->names_n * 2 >= reader->names_cap && !grow(reader))
    return QV_TAR_MEMORY;
  uint64_t hash = hash_of(path, n, kind);
  *slot_of(reader->names, reader->names_cap, hash) = hash;
  reader->names_n++;
  return QV_TAR_OK;
}

static QvTarReason add_path(QvTarReader *reader, const char *path, size_t n)
{
  if (has_name(reader, path, n, 'f'))
    return QV_TAR_PATH_TWICE;
  if (has_name(reader, path, n, 'd'))
    return QV_TAR_PATH_CONFLICT;
  /* From the deepest folder up: where one is known, so are those above it. */
  for (size_t end = n; end-- > 0;) {
    if (path[end] != '/')
      continue;
    if (has_name(reader, path, end, 'f'))
      return QV_TAR_PATH_CONFLICT;
    if (has_name(reader, path, end, 'd'))
      break;
    QvTarReason reason = add_name(reader, path, end, 'd');
    if (reason != QV_TAR_OK)
      return reason;
  }
  return add_name(reader, path, n, 'f');
}

/* ---- one header ---- */

static bool all_zero(const uint8_t *bytes, size_t n)
{
  for (size_t i = 0; i < n; i++) {
    if (bytes[i] != 0)
      return false;
  }
  return true;
}

/* Octal digits, then NULs and blanks, at least one, to the end of the field. */
static bool get_octal(const uint8_t *field, size_t n, uint64_t *value)
{
  uint64_t v = 0;
  size_t i = 0;
  while (i < n && field[i] >= '0' && field[i] <= '7')
    v = v * 8 + (uint64_t)(field[i++] - '0'); /* at most 11 digits: 33 bits */
  if (i == 0 || i == n)
    return false;
  for (; i < n; i++) {
    if (field[i] != 0 && field[i] != ' ')
      return false;
  }
  *value = v;
  return true;
}

static bool checksum_right(const uint8_t *block)
{
  uint64_t said;
  if (!get_octal(block + QV_TAR_CHKSUM_AT, 8, &said))
    return false;
  unsigned sum = 8 * ' ';
  for (size_t i = 0; i < QV_TAR_BLOCK_BYTES; i++) {
    if (i < QV_TAR_CHKSUM_AT || i >= QV_TAR_CHKSUM_AT + 8)
      sum += block[i];
  }
  return said == sum;
}

typedef struct {
  char type;
  uint64_t mode, size;
  size_t name_n;
} Header;

static QvTarReason parse_block(const uint8_t *block, Header *header)
{
  if (!checksum_right(block))
    return QV_TAR_CHECKSUM;
  if (memcmp(block + QV_TAR_MAGIC_AT, "ustar\0" "00", 8) != 0)
    return QV_TAR_MAGIC;
  header->type = (char)block[QV_TAR_TYPE_AT];
  if (header->type != '0' && header->type != 'x')
    return QV_TAR_TYPE;
  uint64_t ignored, major, minor;
  if (!get_octal(block + QV_TAR_MODE_AT, 8, &header->mode) || !get_octal(block + QV_TAR_UID_AT, 8, &ignored) ||
      !get_octal(block + QV_TAR_GID_AT, 8, &ignored) || !get_octal(block + QV_TAR_SIZE_AT, 12, &header->size) ||
      !get_octal(block + QV_TAR_MTIME_AT, 12, &ignored) || !get_octal(block + QV_TAR_DEVMAJOR_AT, 8, &major) ||
      !get_octal(block + QV_TAR_DEVMINOR_AT, 8, &minor))
    return QV_TAR_FIELD;
  size_t prefix_to_end = QV_TAR_BLOCK_BYTES - QV_TAR_PREFIX_AT;
  if (major != 0 || minor != 0 || !all_zero(block + QV_TAR_LINKNAME_AT, QV_TAR_MAGIC_AT - QV_TAR_LINKNAME_AT) ||
      !all_zero(block + QV_TAR_UNAME_AT, QV_TAR_DEVMAJOR_AT - QV_TAR_UNAME_AT) ||
      !all_zero(block + QV_TAR_PREFIX_AT, prefix_to_end))
    return QV_TAR_FIELD_SET;
  header->name_n = strnlen((const char *)block + QV_TAR_NAME_AT, QV_TAR_NAME_BYTES);
  return all_zero(block + header->name_n, QV_TAR_NAME_BYTES - header->name_n) ? QV_TAR_OK : QV_TAR_FIELD_SET;
}

static bool is_pax_name(const uint8_t *block, const Header *header)
{
  return header->name_n == 3 && memcmp(block + QV_TAR_NAME_AT, "pax", 3) == 0;
}

/* The body of an extended header: exactly "<len> path=<path>\n", then zeros. */
static QvTarReason parse_record(QvTarReader *reader)
{
  const uint8_t *body = reader->blocks + QV_TAR_BLOCK_BYTES;
  size_t n = reader->pax_n, i = 0, said = 0;
  while (i < n && i < 4 && body[i] >= '0' && body[i] <= '9')
    said = said * 10 + (size_t)(body[i++] - '0');
  static const char key[] = " path=";
  if (i == 0 || body[0] == '0' || said != n || n - i < sizeof key || memcmp(body + i, key, sizeof key - 1) != 0 ||
      body[n - 1] != '\n')
    return QV_TAR_PAX;
  i += sizeof key - 1;
  size_t path_n = n - 1 - i;
  if (path_n > QV_PATH_BYTES_MAX)
    return QV_TAR_PATH_LONG;
  if (!all_zero(body + n, reader->block_n - QV_TAR_BLOCK_BYTES - n))
    return QV_TAR_PADDING;
  memcpy(reader->entry.path, body + i, path_n);
  reader->entry.path[path_n] = '\0';
  reader->entry.path_n = path_n;
  return path_n <= QV_TAR_NAME_BYTES ? QV_TAR_PAX_SHORT : QV_TAR_OK;
}

/* Everything known of one file: judged, and the event. */
static QvTarEvent begin_entry(QvTarReader *reader, const Header *header)
{
  QvTarEntry *entry = &reader->entry;
  QvTarReason reason = qv_tar_path_check(entry->path, entry->path_n, reader->caps.portable);
  if (reason != QV_TAR_OK)
    return refuse(reader, reason);
  if (reader->entries_n >= reader->caps.entries_max)
    return refuse(reader, QV_TAR_ENTRIES_CAP);
  if (header->size > reader->caps.file_bytes_max)
    return refuse(reader, QV_TAR_FILE_CAP);
  uint64_t padding = qv_tar_padding(header->size);
  if (header->size + padding > reader->caps.total_bytes_max - reader->stream_bytes)
    return refuse(reader, QV_TAR_TOTAL_CAP);
  reason = add_path(reader, entry->path, entry->path_n);
  if (reason != QV_TAR_OK)
    return refuse(reader, reason);
  entry->size = header->size;
  entry->executable = (header->mode & 0100) != 0;
  reader->entries_n++;
  reader->left = header->size;
  reader->padding = (size_t)padding;
  reader->state = DATA;
  reader->untapped = true;
  return QV_TAR_ENTRY;
}

static QvTarEvent take_first_block(QvTarReader *reader)
{
  if (all_zero(reader->blocks, QV_TAR_BLOCK_BYTES)) {
    reader->state = ZERO;
    reader->untapped = true;
    return QV_TAR_MORE;
  }
  Header header;
  QvTarReason reason = parse_block(reader->blocks, &header);
  if (reason != QV_TAR_OK)
    return refuse(reader, reason);
  if (header.type == '0') {
    memcpy(reader->entry.path, reader->blocks, header.name_n);
    reader->entry.path[header.name_n] = '\0';
    reader->entry.path_n = header.name_n;
    return begin_entry(reader, &header);
  }
  if (!is_pax_name(reader->blocks, &header) || header.size == 0)
    return refuse(reader, QV_TAR_PAX);
  if (header.size > QV_TAR_HEADER_BYTES_MAX - 2 * QV_TAR_BLOCK_BYTES)
    return refuse(reader, QV_TAR_PATH_LONG);
  reader->pax_n = (size_t)header.size;
  reader->state = PAX;
  return QV_TAR_MORE;
}

static QvTarEvent take_long_block(QvTarReader *reader)
{
  const uint8_t *block = reader->blocks + reader->block_n - QV_TAR_BLOCK_BYTES;
  Header header;
  if (all_zero(block, QV_TAR_BLOCK_BYTES))
    return refuse(reader, QV_TAR_PAX_ALONE);
  QvTarReason reason = parse_block(block, &header);
  if (reason != QV_TAR_OK)
    return refuse(reader, reason);
  if (header.type != '0')
    return refuse(reader, QV_TAR_PAX_ALONE);
  if (!is_pax_name(block, &header))
    return refuse(reader, QV_TAR_PAX);
  return begin_entry(reader, &header);
}

/* ---- the stream ---- */

static size_t header_bytes_wanted(const QvTarReader *reader)
{
  size_t body = (reader->pax_n + QV_TAR_BLOCK_BYTES - 1) / QV_TAR_BLOCK_BYTES * QV_TAR_BLOCK_BYTES;
  switch (reader->state) {
  case PAX:
    return QV_TAR_BLOCK_BYTES + body;
  case LONG:
    return 2 * QV_TAR_BLOCK_BYTES + body;
  default:
    return QV_TAR_BLOCK_BYTES;
  }
}

static void tap(QvTarReader *reader, const uint8_t *bytes, size_t n)
{
  if (reader->tap && n > 0)
    reader->tap(reader->tap_user, bytes, n);
}

static void tap_header(QvTarReader *reader)
{
  if (!reader->untapped)
    return;
  tap(reader, reader->blocks, reader->block_n);
  reader->untapped = false;
  reader->block_n = 0;
  reader->pax_n = 0;
}

static const uint8_t *consume(QvTarReader *reader, const uint8_t **bytes, size_t *n, size_t wanted)
{
  const uint8_t *start = *bytes;
  *bytes += wanted;
  *n -= wanted;
  reader->stream_bytes += wanted;
  return start;
}

static QvTarEvent step_header(QvTarReader *reader, const uint8_t **bytes, size_t *n)
{
  size_t wanted = header_bytes_wanted(reader) - reader->block_n;
  size_t taken = *n < wanted ? *n : wanted;
  if (taken > reader->caps.total_bytes_max - reader->stream_bytes)
    return refuse(reader, QV_TAR_TOTAL_CAP);
  if (taken > 0)
    memcpy(reader->blocks + reader->block_n, consume(reader, bytes, n, taken), taken);
  reader->block_n += taken;
  if (taken < wanted)
    return QV_TAR_MORE;
  QvTarReason reason;
  switch (reader->state) {
  case HEADER:
    return take_first_block(reader);
  case PAX:
    reason = parse_record(reader);
    if (reason != QV_TAR_OK)
      return refuse(reader, reason);
    reader->state = LONG;
    return QV_TAR_MORE;
  case LONG:
    return take_long_block(reader);
  default: /* ZERO */
    if (!all_zero(reader->blocks, QV_TAR_BLOCK_BYTES))
      return refuse(reader, QV_TAR_LONE_ZERO_BLOCK);
    reader->state = END;
    reader->untapped = true;
    tap_header(reader);
    return QV_TAR_END;
  }
}

static QvTarEvent step_data(QvTarReader *reader, const uint8_t **bytes, size_t *n)
{
  size_t taken = *n < reader->left ? *n : (size_t)reader->left;
  if (taken == 0 && reader->left > 0)
    return QV_TAR_MORE;
  if (taken > 0) {
    reader->data = consume(reader, bytes, n, taken);
    reader->data_n = taken;
    reader->left -= taken;
    tap(reader, reader->data, taken);
    return QV_TAR_DATA;
  }
  reader->state = PADDING;
  return QV_TAR_ENTRY_END;
}

static QvTarEvent step_padding(QvTarReader *reader, const uint8_t **bytes, size_t *n)
{
  size_t taken = *n < reader->padding ? *n : reader->padding;
  if (taken > 0) {
    const uint8_t *padding = consume(reader, bytes, n, taken);
    if (!all_zero(padding, taken))
      return refuse(reader, QV_TAR_PADDING);
    tap(reader, padding, taken);
    reader->padding -= taken;
  }
  if (reader->padding == 0)
    reader->state = HEADER;
  return QV_TAR_MORE;
}

QvTarEvent qv_tar_reader_step(QvTarReader *reader, const uint8_t **bytes, size_t *n)
{
  tap_header(reader);
  for (;;) {
    int before = reader->state;
    QvTarEvent event;
    switch (reader->state) {
    case BAD:
      return QV_TAR_BAD;
    case END:
      return *n == 0 ? QV_TAR_MORE : refuse(reader, QV_TAR_TRAILING);
    case DATA:
      return step_data(reader, bytes, n);
    case PADDING:
      event = step_padding(reader, bytes, n);
      break;
    default:
      event = step_header(reader, bytes, n);
      if (reader->state == ZERO)
        tap_header(reader);
      break;
    }
    if (event != QV_TAR_MORE || (*n == 0 && reader->state == before))
      return event;
  }
}

QvTarReason qv_tar_reader_finish(QvTarReader *reader)
{
  if (reader->state != BAD && reader->state != END)
    refuse(reader, reader->state == LONG && reader->block_n == header_bytes_wanted(reader) - QV_TAR_BLOCK_BYTES
                     ? QV_TAR_PAX_ALONE
                     : QV_TAR_TRUNCATED);
  return reader->reason;
}
