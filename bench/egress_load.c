/* SPDX-License-Identifier: Apache-2.0 */
/* Both ends of a proxy's work, for bench/egress.py: a far side that echoes (port
 * 443) or sends without end (444), and clients of three kinds. One thread, one epoll, plain reads and writes, the
 * same for every proxy.
 *
 *   egress_load serve ADDRESS
 *   egress_load connects PROXY-PORT HOST AUTH TOTAL AT-ONCE     prints seconds
 *   egress_load stream   PROXY-PORT HOST AUTH TUNNELS SECONDS   prints "open", waits for a byte, prints bytes a second;
 *                                                               PROXY-PORT 0: no proxy
 *   egress_load idle     PROXY-PORT HOST AUTH TUNNELS           prints "open", then waits for the end of its input */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { ECHO_PORT = 443, STREAM_PORT = 444, BUFFER = 256 * 1024, HELLO_MAX = 512 };

static char buffer[BUFFER];
static unsigned char hello[HELLO_MAX];
static size_t hello_n;

static _Noreturn void fail(const char *what)
{
  fprintf(stderr, "egress_load: %s: %s\n", what, strerror(errno));
  exit(1);
}

static double now_s(void)
{
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static void put(size_t width, size_t value)
{
  for (size_t i = width; i-- > 0;)
    hello[hello_n++] = (unsigned char)(value >> (8 * i));
}

/* A ClientHello that names HOST: what a proxy that reads it wants, and bytes like others to one that does not. */
static void make_hello(const char *host)
{
  size_t name_n = strlen(host), body_n = 2 + 32 + 1 + 4 + 2 + 2 + 9 + name_n;
  put(3, 0x160301);
  put(2, body_n + 4);
  put(1, 1);
  put(3, body_n);
  put(2, 0x0303);
  for (size_t i = 0; i < 32; i++)
    put(1, i);
  put(1, 0);
  put(2, 2);
  put(2, 0x1301);
  put(2, 0x0100);
  put(2, name_n + 9);
  put(2, 0);
  put(2, name_n + 5);
  put(2, name_n + 3);
  put(1, 0);
  put(2, name_n);
  memcpy(hello + hello_n, host, name_n);
  hello_n += name_n;
}

/* ---- the far side */

typedef struct {
  int fd, port;
  bool listens;
} End;

static void watch(int epoll, int fd, uint32_t events, void *data)
{
  struct epoll_event event = {.events = events, .data.ptr = data};
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0)
    fail("epoll_ctl");
}

static void end_add(int epoll, int fd, int port, bool listens)
{
  End *end = calloc(1, sizeof *end);
  *end = (End){fd, port, listens};
  watch(epoll, fd, EPOLLIN | (!listens && port == STREAM_PORT ? EPOLLOUT : 0), end);
}

static void listen_at(int epoll, const char *address, int port)
{
  const int yes = 1;
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = inet_addr(address)};
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (bind(fd, (struct sockaddr *)&at, sizeof at) != 0 || listen(fd, 4096) != 0)
    fail("listen");
  end_add(epoll, fd, port, true);
}

static bool end_step(int epoll, End *end, uint32_t events)
{
  if (end->listens) {
    int fd = accept4(end->fd, NULL, NULL, SOCK_NONBLOCK);
    if (fd >= 0)
      end_add(epoll, fd, end->port, false);
    return true;
  }
  if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
    ssize_t n = recv(end->fd, buffer, sizeof buffer, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN))
      return false;
    if (end->port == ECHO_PORT && n > 0 && send(end->fd, buffer, (size_t)n, MSG_NOSIGNAL) != n)
      return false;
  }
  if (end->port == STREAM_PORT && (events & EPOLLOUT))
    return send(end->fd, buffer, sizeof buffer, MSG_NOSIGNAL) >= 0 || errno == EAGAIN;
  return true;
}

static _Noreturn void serve(const char *address)
{
  int epoll = epoll_create1(0);
  listen_at(epoll, address, ECHO_PORT);
  listen_at(epoll, address, STREAM_PORT);
  printf("serving\n");
  fflush(stdout);
  for (;;) {
    struct epoll_event events[64];
    int n = epoll_wait(epoll, events, 64, -1);
    for (int i = 0; i < n; i++) {
      End *end = events[i].data.ptr;
      if (!end_step(epoll, end, events[i].events)) {
        close(end->fd);
        free(end);
      }
    }
  }
}

/* ---- clients */

typedef struct {
  int fd;
  bool open;      /* the answer to CONNECT was read */
  size_t got;     /* of the echo, or of the answer's end */
} Client;

static int proxy_port;
static char head[1024];
static size_t head_n;

static void client_start(Client *client, int epoll, const char *address, int far_port)
{
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr(proxy_port ? "127.0.0.1" : address),
                           .sin_port = htons((uint16_t)(proxy_port ? proxy_port : far_port))};
  *client = (Client){.fd = socket(AF_INET, SOCK_STREAM, 0), .open = proxy_port == 0};
  if (client->fd < 0 || connect(client->fd, (struct sockaddr *)&to, sizeof to) != 0)
    fail("connect");
  fcntl(client->fd, F_SETFL, O_NONBLOCK);
  const void *first = proxy_port ? (const void *)head : hello;
  size_t n = proxy_port ? head_n : hello_n;
  if (send(client->fd, first, n, MSG_NOSIGNAL) != (ssize_t)n)
    fail("send");
  watch(epoll, client->fd, EPOLLIN, client);
}

/* Reads the proxy's answer and says hello behind it. */
static void client_answer(Client *client)
{
  static const char end[] = "\r\n\r\n";
  char bytes[2048];
  ssize_t n = recv(client->fd, bytes, sizeof bytes - 1, 0);
  if (n < 0 && errno == EAGAIN)
    return;
  if (n <= 0)
    fail("the proxy hung up");
  bytes[n] = '\0';
  if (client->got == 0 && n >= 12 && memcmp(bytes + 8, " 200", 4) != 0) {
    fprintf(stderr, "egress_load: the proxy says %.60s\n", bytes);
    exit(1);
  }
  for (ssize_t i = 0; i < n && client->got < 4; i++)
    client->got = bytes[i] == end[client->got] ? client->got + 1 : bytes[i] == '\r' ? 1 : 0;
  if (client->got < 4) {
    client->got = client->got ? client->got : 0;
    return;
  }
  client->open = true;
  client->got = 0;
  if (send(client->fd, hello, hello_n, MSG_NOSIGNAL) != (ssize_t)hello_n)
    fail("send");
}

static void connects(const char *address, int total, int at_once)
{
  int epoll = epoll_create1(0), started = 0, done = 0;
  Client *clients = calloc((size_t)at_once, sizeof *clients);
  double from = now_s();
  for (; started < at_once && started < total; started++)
    client_start(&clients[started], epoll, address, ECHO_PORT);
  while (done < total) {
    struct epoll_event events[64];
    int n = epoll_wait(epoll, events, 64, 30000);
    if (n <= 0)
      fail("nothing moves");
    for (int i = 0; i < n; i++) {
      Client *client = events[i].data.ptr;
      if (!client->open) {
        client_answer(client);
        continue;
      }
      ssize_t got = recv(client->fd, buffer, sizeof buffer, 0);
      if (got < 0 && errno == EAGAIN)
        continue;
      if (got <= 0)
        fail("a tunnel ended early");
      client->got += (size_t)got;
      if (client->got < hello_n)
        continue;
      close(client->fd);
      done++;
      if (started < total) {
        client_start(client, epoll, address, ECHO_PORT);
        started++;
      }
    }
  }
  printf("%.6f\n", now_s() - from);
}

/* Opens them one after another. What the far side sends to one that is open stays unread until the last one is: so nothing
 * moves while the others are opened. */
static int open_all(Client *clients, int tunnels, const char *address, int far_port)
{
  int all = epoll_create1(0);
  for (int i = 0; i < tunnels; i++) {
    Client *client = &clients[i];
    int alone = epoll_create1(0);
    client_start(client, alone, address, far_port);
    while (!client->open || (far_port == ECHO_PORT && client->got < hello_n)) {
      struct epoll_event event;
      if (epoll_wait(alone, &event, 1, 30000) <= 0)
        fail("nothing moves");
      if (!client->open) {
        client_answer(client);
        continue;
      }
      ssize_t got = recv(client->fd, buffer, sizeof buffer, 0);
      client->got += got > 0 ? (size_t)got : 0;
      if (got == 0)
        fail("a tunnel ended early");
    }
    close(alone);
    watch(all, client->fd, EPOLLIN, client);
  }
  return all;
}

static void say_open(void)
{
  printf("open\n");
  fflush(stdout);
}

static void stream(const char *address, int tunnels, double seconds)
{
  Client *clients = calloc((size_t)tunnels, sizeof *clients);
  int epoll = open_all(clients, tunnels, address, STREAM_PORT);
  uint64_t bytes = 0;
  say_open();
  if (read(STDIN_FILENO, buffer, 1) != 1)
    fail("nobody says go");
  double from = now_s(), until = from + seconds;
  while (now_s() < until) {
    struct epoll_event events[64];
    int n = epoll_wait(epoll, events, 64, 30000);
    if (n <= 0)
      fail("nothing moves");
    for (int i = 0; i < n; i++) {
      ssize_t got = recv(((Client *)events[i].data.ptr)->fd, buffer, sizeof buffer, 0);
      if (got == 0)
        fail("a tunnel ended early");
      bytes += got > 0 ? (uint64_t)got : 0;
    }
  }
  printf("%.0f\n", (double)bytes / (now_s() - from));
}

static void idle(const char *address, int tunnels)
{
  Client *clients = calloc((size_t)tunnels, sizeof *clients);
  open_all(clients, tunnels, address, ECHO_PORT);
  say_open();
  while (read(STDIN_FILENO, buffer, sizeof buffer) > 0)
    ;
}

int main(int argc, char **argv)
{
  struct rlimit files;
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  if (argc == 3 && strcmp(argv[1], "serve") == 0)
    serve(argv[2]);
  if (argc < 6) {
    fprintf(stderr, "egress_load: see the head of bench/egress_load.c\n");
    return 64;
  }
  const char *mode = argv[1], *host = argv[3], *far = "127.0.0.1";
  int port = strcmp(mode, "stream") == 0 ? STREAM_PORT : ECHO_PORT;
  proxy_port = atoi(argv[2]);
  make_hello(host);
  head_n = (size_t)snprintf(head, sizeof head, "CONNECT %s:%d HTTP/1.1\r\nHost: %s:%d\r\n%s%s%s\r\n", host, port, host, port,
                            *argv[4] ? "Proxy-Authorization: Basic " : "", argv[4], *argv[4] ? "\r\n" : "");
  if (strcmp(mode, "connects") == 0 && argc == 7)
    connects(far, atoi(argv[5]), atoi(argv[6]));
  else if (strcmp(mode, "stream") == 0 && argc == 7)
    stream(far, atoi(argv[5]), atof(argv[6]));
  else if (strcmp(mode, "idle") == 0)
    idle(far, atoi(argv[5]));
  return 0;
}
