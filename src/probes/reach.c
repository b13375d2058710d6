/* SPDX-License-Identifier: Apache-2.0 */
/* Owns `probes reach`. All targets are asked at once. A host answers in the order of what it was sent, so once it has
 * taken a connection that was begun later, what has not come until then, and a little longer, does not come. */
#include "probes/reach.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "probes/answer.h"

enum { FENCE_MS = 20000, LINGER_MS = 1000, DNS_BYTES_MAX = 512, NAME_MAX_BYTES = 253, DNS_PORT = 53 };

typedef enum { KIND_TCP, KIND_UDP, KIND_DNS, KIND_RESOLVER, KIND_ROUTE } Kind;

static const struct {
  const char *prefix;
  Kind kind;
} kinds[] = {{"tcp:", KIND_TCP}, {"udp:", KIND_UDP}, {"dns:", KIND_DNS}, {"resolver:", KIND_RESOLVER}, {"route:", KIND_ROUTE}};

typedef struct {
  const char *text;
  Kind kind;
  struct sockaddr_in to;
  const char *name; /* to be asked for */
  int fd;           /* -1: answered */
  const char *answer;
} Target;

static const char *error_name(int error)
{
  const char *name = strerrorname_np(error);
  return name != NULL ? name : "E?";
}

static void settle(Target *target, const char *answer)
{
  target->answer = answer;
  if (target->fd >= 0)
    close(target->fd);
  target->fd = -1;
}

/* ---- names */

/* A question for NAME's addresses; 0: it is no name. */
static size_t dns_question(const char *name, unsigned char *out)
{
  static const unsigned char head[12] = {0x51, 0x56, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0};
  size_t n = sizeof head;
  memcpy(out, head, sizeof head);
  if (*name == '\0' || strlen(name) > NAME_MAX_BYTES)
    return 0;
  while (*name != '\0') {
    size_t label = strcspn(name, ".");
    if (label == 0 || label > 63)
      return 0;
    out[n++] = (unsigned char)label;
    memcpy(out + n, name, label);
    n += label;
    name += label + (name[label] == '.');
  }
  static const unsigned char tail[5] = {0, 0, 1, 0, 1};
  memcpy(out + n, tail, sizeof tail);
  return n + sizeof tail;
}

/* Does an answer name an address? */
static const char *dns_answer(int fd)
{
  unsigned char bytes[DNS_BYTES_MAX];
  ssize_t n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
  return n >= 12 && (bytes[6] != 0 || bytes[7] != 0) ? "OPEN" : "CLOSED";
}

static void ask_name(Target *target)
{
  unsigned char question[12 + NAME_MAX_BYTES + 8];
  size_t n = dns_question(target->name, question);
  target->answer = "CLOSED";
  if (n == 0 || send(target->fd, question, n, 0) < 0)
    settle(target, "CLOSED");
}

/* ---- targets */

static int parse(Target *target, const char *text)
{
  char address[INET_ADDRSTRLEN] = "";
  int port = DNS_PORT;
  *target = (Target){.text = text, .fd = -1, .kind = KIND_ROUTE};
  size_t i = 0, n = sizeof kinds / sizeof kinds[0];
  while (i < n && strncmp(text, kinds[i].prefix, strlen(kinds[i].prefix)) != 0)
    i++;
  if (i == n)
    return -1;
  target->kind = kinds[i].kind;
  text += strlen(kinds[i].prefix);
  if (target->kind == KIND_RESOLVER) {
    target->name = text;
    return 0;
  }
  size_t length = strcspn(text, ":");
  if (length >= sizeof address)
    return -1;
  memcpy(address, text, length);
  text += length + (text[length] == ':');
  if (target->kind == KIND_DNS)
    target->name = text;
  else if (target->kind != KIND_ROUTE)
    port = atoi(text);
  target->to = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};
  return inet_pton(AF_INET, address, &target->to.sin_addr) == 1 && port > 0 && port < 65536 ? 0 : -1;
}

static void begin(Target *target)
{
  int type = target->kind == KIND_TCP ? SOCK_STREAM : SOCK_DGRAM;
  target->answer = "SILENT";
  target->fd = socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (target->fd < 0) {
    settle(target, error_name(errno));
    return;
  }
  if (connect(target->fd, (struct sockaddr *)&target->to, sizeof target->to) == 0) {
    if (target->kind == KIND_TCP || target->kind == KIND_ROUTE)
      settle(target, "OPEN");
    else if (target->kind == KIND_UDP && send(target->fd, "?", 1, 0) < 0)
      settle(target, error_name(errno));
    else if (target->kind == KIND_DNS)
      ask_name(target);
  } else if (errno != EINPROGRESS) {
    settle(target, target->kind == KIND_DNS ? "CLOSED" : error_name(errno));
  }
}

static void hear(Target *target)
{
  int error = 0;
  socklen_t n = sizeof error;
  if (target->kind == KIND_DNS) {
    settle(target, dns_answer(target->fd));
    return;
  }
  if (getsockopt(target->fd, SOL_SOCKET, SO_ERROR, &error, &n) != 0)
    error = errno;
  settle(target, error == 0 ? "OPEN" : error_name(error));
}

/* Until the first TURN targets are answered, or MS are over. */
static void turn(Target *targets, int n, int ms)
{
  struct pollfd fds[QV_REACH_TARGETS_MAX];
  for (;;) {
    int waiting = 0;
    for (int i = 0; i < n; i++) {
      short events = targets[i].kind == KIND_TCP ? POLLOUT : POLLIN;
      fds[i] = (struct pollfd){.fd = targets[i].fd, .events = events};
      waiting += targets[i].fd >= 0;
    }
    /* Each answer makes the wait longer, never shorter; there are not many. */
    if (waiting == 0 || poll(fds, (nfds_t)n, ms) <= 0)
      return;
    for (int i = 0; i < n; i++) {
      if (targets[i].fd >= 0 && fds[i].revents != 0)
        hear(&targets[i]);
    }
  }
}

static void print(const Target *target)
{
  printf("reach %s %s\n", target->text, target->answer);
}

/* ---- the name servers that the image or the engine has given us */

static const char *ask_resolvers(const char *name)
{
  static char text[65536];
  Target servers[8];
  int n = 0;
  if (qv_slurp("/etc/resolv.conf", text, sizeof text) < 0)
    return "CLOSED";
  for (char *line = strtok(text, "\n"); line != NULL && n < 8; line = strtok(NULL, "\n")) {
    static char spelled[8][INET_ADDRSTRLEN + NAME_MAX_BYTES + 8];
    char address[64];
    if (sscanf(line, "nameserver %63s", address) != 1)
      continue;
    snprintf(spelled[n], sizeof spelled[n], "dns:%s:%s", address, name);
    if (parse(&servers[n], spelled[n]) == 0) {
      begin(&servers[n]);
      n++;
    }
  }
  turn(servers, n, LINGER_MS);
  for (int i = 0; i < n; i++) {
    if (strcmp(servers[i].answer, "OPEN") == 0)
      return "OPEN";
  }
  return "CLOSED";
}

int qv_reach(char *const *texts, int n)
{
  static Target targets[QV_REACH_TARGETS_MAX];
  if (n < 1 || n > QV_REACH_TARGETS_MAX)
    return 64;
  for (int i = 0; i < n; i++) {
    if (parse(&targets[i], texts[i]) != 0)
      return 64;
  }
  Target fence = targets[0];
  begin(&targets[0]);
  turn(targets, 1, FENCE_MS);
  for (int i = 1; i < n; i++) {
    if (targets[i].kind == KIND_RESOLVER)
      targets[i].answer = ask_resolvers(targets[i].name);
    else
      begin(&targets[i]);
  }
  begin(&fence);
  turn(&fence, 1, FENCE_MS);
  turn(targets + 1, n - 1, LINGER_MS);
  for (int i = 0; i < n; i++)
    print(&targets[i]);
  return 0;
}
