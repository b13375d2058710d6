/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as the head of a request, and the request that a CONNECT makes of it. */
#include <string.h>

#include "egress/request.h"
#include "fuzz.h"

static QvHttpVerdict read_head(QvHttpHead *head, const uint8_t *data, size_t size, size_t step, size_t *used)
{
  QvHttpVerdict verdict = QV_HTTP_MORE;
  qv_http_head_init(head);
  *used = 0;
  while (*used < size && verdict == QV_HTTP_MORE) {
    size_t taken, part = size - *used < step ? size - *used : step;
    verdict = qv_http_head_feed(head, data + *used, part, &taken);
    QV_FUZZ_CHECK(taken <= part && (taken == part || verdict != QV_HTTP_MORE));
    *used += taken;
  }
  return verdict;
}

/* What an accepted head is made of gives the same head again. */
static void check_parts(const QvHttpHead *head)
{
  size_t at = (size_t)head->method.n + 1 + head->target.n + sizeof " HTTP/1.1\r\n" - 1;
  QV_FUZZ_CHECK(head->method.n > 0 && head->target.n > 0);
  for (size_t i = 0; i < head->fields_n; i++) {
    QvHttpSpan name = head->fields[i].name, value = head->fields[i].value;
    QV_FUZZ_CHECK(name.n > 0 && name.at == at && head->bytes[name.at + name.n] == ':');
    QV_FUZZ_CHECK(value.at > name.at + name.n);
    const char *end = memchr(head->bytes + value.at + value.n, '\n', (size_t)head->used - value.at - value.n);
    QV_FUZZ_CHECK(end != NULL && end[-1] == '\r');
    at = (size_t)(end + 1 - head->bytes);
  }
  QV_FUZZ_CHECK(at + 2 == head->used);
}

static void check_request(const QvHttpHead *head)
{
  QvRequest request, again;
  QvReason reason = qv_request_parse(head, &request);
  QV_FUZZ_CHECK((reason == QV_REASON_NONE) == (request.token[0] != '\0' && request.host_port[0] != '\0'));
  if (request.host_port[0] == '\0')
    return;
  QV_FUZZ_CHECK(qv_request_parse_target(request.host_port, strlen(request.host_port), &again));
  QV_FUZZ_CHECK(strcmp(again.host_port, request.host_port) == 0 && again.port == request.port && again.port > 0);
  QV_FUZZ_CHECK(request.host_port[request.host_n] == ':' && again.literal == request.literal);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  size_t used, used_single;
  QvHttpHead *head = malloc(sizeof *head);
  QvHttpHead *single = malloc(sizeof *single);
  QvHttpVerdict verdict = read_head(head, data, size, size + 1, &used);
  QV_FUZZ_CHECK(read_head(single, data, size, 1, &used_single) == verdict && used_single == used);
  QV_FUZZ_CHECK(head->used <= QV_HTTP_HEAD_BYTES_MAX && head->fields_n <= QV_HTTP_FIELDS_MAX);
  if (verdict == QV_HTTP_DONE) {
    QV_FUZZ_CHECK(used == head->used && memcmp(head->bytes, data, used) == 0 && memcmp(data + used - 4, "\r\n\r\n", 4) == 0);
    check_parts(head);
    check_request(head);
  }
  free(single);
  free(head);
  return 0;
}
