/* SPDX-License-Identifier: Apache-2.0 */
/* Owns what a path in an archive may be, and the texts of refusals. */
#include <string.h>

#include "format/tar.h"
#include "format/text.h"

#define QV_TAR_NAME(name, text) #name,
#define QV_TAR_TEXT(name, text) text,
static const char *const reason_names[] = {QV_TAR_REASONS(QV_TAR_NAME)};
static const char *const reason_texts[] = {QV_TAR_REASONS(QV_TAR_TEXT)};

const char *qv_tar_reason_name(QvTarReason reason)
{
  return reason_names[reason];
}

const char *qv_tar_reason_text(QvTarReason reason)
{
  return reason_texts[reason];
}

static bool equals_ignoring_case(const char *part, size_t n, const char *lower)
{
  if (n != strlen(lower))
    return false;
  for (size_t i = 0; i < n; i++) {
    char c = part[i];
    if (c >= 'A' && c <= 'Z')
      c = (char)(c - 'A' + 'a');
    if (c != lower[i])
      return false;
  }
  return true;
}

/* Code points that some file systems leave out of a name before they compare it (HFS+, as git's
 * protectHFS lists them): zero-width and direction marks. */
static bool is_ignored(uint32_t c)
{
  return (c >= 0x200c && c <= 0x200f) || (c >= 0x202a && c <= 0x202e) || (c >= 0x206a && c <= 0x206f) || c == 0xfeff;
}

/* PART, which is UTF-8, without those: its length in OUT, or SIZE_MAX where it is longer than CAP. */
static size_t without_ignored(const char *part, size_t n, char *out, size_t cap)
{
  size_t out_n = 0;
  for (size_t i = 0; i < n;) {
    uint32_t c;
    size_t c_n = qv_text_char((const uint8_t *)part + i, n - i, &c);
    if (c_n == 0 || (!is_ignored(c) && out_n + c_n > cap))
      return SIZE_MAX;
    if (!is_ignored(c)) {
      memcpy(out + out_n, part + i, c_n);
      out_n += c_n;
    }
    i += c_n;
  }
  return out_n;
}

/* A folder that git would read its configuration from, also where the file system ignores letter case,
 * zero-width characters, dots and blanks at the end of a name, or keeps short names beside long ones. */
static bool is_git(const char *part, size_t n, bool portable)
{
  char plain[QV_TAR_PART_BYTES_MAX];
  size_t plain_n = without_ignored(part, n, plain, sizeof plain);
  if (plain_n == SIZE_MAX)
    return false;
  if (portable && equals_ignoring_case(plain, plain_n, "git~1"))
    return true;
  while (plain_n > 0 && (plain[plain_n - 1] == ' ' || plain[plain_n - 1] == '.'))
    plain_n--;
  return equals_ignoring_case(plain, plain_n, ".git");
}

static QvTarReason check_part(const char *part, size_t n, bool portable)
{
  if (n == 0)
    return QV_TAR_PATH_EMPTY;
  if ((n == 1 && part[0] == '.') || (n == 2 && part[0] == '.' && part[1] == '.'))
    return QV_TAR_PATH_DOT;
  if (n > QV_TAR_PART_BYTES_MAX)
    return QV_TAR_PATH_LONG;
  return is_git(part, n, portable) ? QV_TAR_PATH_GIT : QV_TAR_OK;
}

static QvTarReason check_characters(const char *path, size_t n, bool portable)
{
  const uint8_t *bytes = (const uint8_t *)path;
  for (size_t i = 0; i < n;) {
    uint32_t c;
    size_t c_n = qv_text_char(bytes + i, n - i, &c);
    if (c_n == 0)
      return QV_TAR_PATH_UTF8;
    if (c < 0x20 || (c >= 0x7f && c < 0xa0))
      return QV_TAR_PATH_CONTROL;
    if (portable && c == '\\')
      return QV_TAR_PATH_FOREIGN;
    i += c_n;
  }
  bool letter = n > 1 && ((path[0] | 0x20) >= 'a' && (path[0] | 0x20) <= 'z');
  return portable && letter && path[1] == ':' ? QV_TAR_PATH_FOREIGN : QV_TAR_OK;
}

QvTarReason qv_tar_path_check(const char *path, size_t n, bool portable)
{
  if (n == 0)
    return QV_TAR_PATH_EMPTY;
  if (n > QV_PATH_BYTES_MAX)
    return QV_TAR_PATH_LONG;
  if (path[0] == '/')
    return QV_TAR_PATH_ABSOLUTE;
  QvTarReason reason = check_characters(path, n, portable);
  for (size_t start = 0; reason == QV_TAR_OK && start <= n;) {
    const char *slash = memchr(path + start, '/', n - start);
    size_t end = slash ? (size_t)(slash - path) : n;
    reason = check_part(path + start, end - start, portable);
    start = end + 1;
  }
  return reason;
}
