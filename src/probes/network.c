/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the probes of the network: nothing of it is there but the loopback interface. Routes are asked for with
 * connect(2) of a datagram socket, which sends nothing. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_alg.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "probes/answer.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* NONE: no address has a route, or none can be had. The first that has one else. */
static void answer_routes(int family, const char *const *addresses, size_t n)
{
  for (size_t i = 0; i < n; i++) {
    struct sockaddr_in to4 = {.sin_family = AF_INET, .sin_port = htons(53)};
    struct sockaddr_in6 to6 = {.sin6_family = AF_INET6, .sin6_port = htons(53)};
    int fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int status;
    if (fd < 0)
      continue;
    if (family == AF_INET) {
      inet_pton(AF_INET, addresses[i], &to4.sin_addr);
      status = connect(fd, (struct sockaddr *)&to4, sizeof to4);
    } else {
      inet_pton(AF_INET6, addresses[i], &to6.sin6_addr);
      status = connect(fd, (struct sockaddr *)&to6, sizeof to6);
    }
    if (status == 0) {
      qv_answer(addresses[i]);
      return;
    }
    close(fd);
  }
  qv_answer("NONE");
}

void qv_probe_route_metadata(void)
{
  static const char *const addresses[] = {"169.254.169.254", "169.254.170.2", "100.100.100.200", "100.80.80.80",
                                          "168.63.129.16", "192.0.0.192"};
  answer_routes(AF_INET, addresses, COUNT(addresses));
}

void qv_probe_route_host(void)
{
  static const char *const addresses[] = {"172.17.0.1", "172.18.0.1", "172.16.0.1", "10.0.0.1", "10.0.2.2", "10.201.0.1",
                                          "192.168.0.1", "192.168.65.2"};
  answer_routes(AF_INET, addresses, COUNT(addresses));
}

void qv_probe_route_world(void)
{
  static const char *const addresses[] = {"192.0.2.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "255.255.255.255"};
  answer_routes(AF_INET, addresses, COUNT(addresses));
}

void qv_probe_route_ipv6(void)
{
  static const char *const addresses[] = {"2001:db8::1", "fd00:ec2::254", "fd00::1", "64:ff9b::c000:201", "2002:c000:201::1"};
  answer_routes(AF_INET6, addresses, COUNT(addresses));
}

/* NONE, or the first interface that is not the loopback one. */
void qv_probe_interfaces(void)
{
  char text[16384];
  if (qv_slurp("/proc/net/dev", text, sizeof text) < 0) {
    qv_answer_error(errno);
    return;
  }
  for (char *at = text; *at != '\0'; at += strcspn(at, "\n") + (strchr(at, '\n') != NULL)) {
    char name[64], line[256];
    snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
    if (strchr(line, ':') == NULL || sscanf(line, " %63[^:]", name) != 1 || strcmp(name, "lo") == 0)
      continue;
    qv_answer(name);
    return;
  }
  qv_answer("NONE");
}

/* NONE, or the first port of the loopback interface that somebody listens at. */
void qv_probe_loopback(void)
{
  static const int ports[] = {22, 53, 80, 111, 443, 2375, 2376, 3128, 5432, 6379, 6443, 8080, 10250, 10255};
  for (size_t i = 0; i < COUNT(ports); i++) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)ports[i]),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0) {
      qv_answer_number(ports[i]);
      return;
    }
    close(fd);
  }
  qv_answer("NONE");
}

/* A resolver that an engine puts into the sandbox would be a way out: whatever it answers is an answer. */
void qv_probe_resolver(void)
{
  static const unsigned char question[] = {0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 7, 'e', 'x', 'a', 'm', 'p', 'l', 'e',
                                           3, 'c', 'o', 'm', 0, 0, 1, 0, 1};
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(53)};
  int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  inet_pton(AF_INET, "127.0.0.11", &to.sin_addr);
  struct pollfd one = {.fd = fd, .events = POLLIN};
  char answer[512];
  if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) != 0 || send(fd, question, sizeof question, 0) < 0)
    qv_answer("NONE");
  else
    qv_answer(poll(&one, 1, 500) > 0 && recv(fd, answer, sizeof answer, 0) > 0 ? "ANSWERS" : "NONE");
}

static void answer_abstract(const char *name)
{
  struct sockaddr_un to = {.sun_family = AF_UNIX};
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  size_t n = strlen(name);
  memcpy(to.sun_path + 1, name, n);
  qv_answer_result(connect(fd, (struct sockaddr *)&to, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n)));
}

void qv_probe_abstract_systemd(void)
{
  answer_abstract("/org/freedesktop/systemd1/notify");
}

/* NONE: no socket of anybody else is listed. */
void qv_probe_unix_list(void)
{
  static char text[65536];
  long n = qv_slurp("/proc/net/unix", text, sizeof text);
  if (n < 0) {
    qv_answer_error(errno);
    return;
  }
  /* Named sockets: those of the entry and its steps have no name. */
  for (char *at = text; *at != '\0'; at += strcspn(at, "\n") + (strchr(at, '\n') != NULL)) {
    char line[512], *name;
    snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
    name = strpbrk(line, "/@");
    if (name != NULL) {
      qv_answer(name);
      return;
    }
  }
  qv_answer("NONE");
}

#define SOCKET(name, family, type, protocol)                        \
  void qv_probe_##name(void)                                        \
  {                                                                 \
    qv_answer_result(socket(family, (type) | SOCK_CLOEXEC, protocol)); \
  }

SOCKET(socket_packet, AF_PACKET, SOCK_RAW, htons(3))
SOCKET(socket_raw, AF_INET, SOCK_RAW, IPPROTO_ICMP)
SOCKET(socket_vsock, AF_VSOCK, SOCK_STREAM, 0)
SOCKET(socket_alg, AF_ALG, SOCK_SEQPACKET, 0)
SOCKET(socket_audit, AF_NETLINK, SOCK_RAW, NETLINK_AUDIT)
SOCKET(socket_netfilter, AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER)
SOCKET(socket_bluetooth, AF_BLUETOOTH, SOCK_RAW, 1)
