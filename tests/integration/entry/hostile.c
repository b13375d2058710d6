/* SPDX-License-Identifier: Apache-2.0 */
/* What a hostile step may try, one verb each. Static, so that it runs wherever
 * the entry runs. Prints "BREACH …" where something worked that must not. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* A static program that is not position independent starts here. */
#define ENTRY_TEXT ((void *)0x400000)

static int breaches;

static void breach(const char *what)
{
  printf("BREACH %s\n", what);
  breaches++;
}

static void done(const char *verb)
{
  if (breaches == 0)
    printf("%s: refused\n", verb);
  fflush(stdout);
  exit(breaches ? 99 : 0);
}

static void try_mem(void)
{
  static const int flags[] = {O_RDONLY, O_RDWR, O_WRONLY};
  char byte = 0;
  for (size_t i = 0; i < 3; i++) {
    int fd = open("/proc/1/mem", flags[i]);
    if (fd < 0)
      continue;
    if (flags[i] != O_WRONLY && pread(fd, &byte, 1, (off_t)(long)ENTRY_TEXT) == 1)
      breach("read of /proc/1/mem");
    if (flags[i] != O_RDONLY && pwrite(fd, &byte, 1, (off_t)(long)ENTRY_TEXT) == 1)
      breach("write to /proc/1/mem");
    close(fd);
  }
  done("mem");
}

static void try_ptrace(void)
{
  if (ptrace(PTRACE_ATTACH, 1, NULL, NULL) == 0)
    breach("PTRACE_ATTACH");
  if (ptrace(PTRACE_SEIZE, 1, NULL, NULL) == 0)
    breach("PTRACE_SEIZE");
  done("ptrace");
}

static void try_vm(void)
{
  char byte = 0;
  struct iovec here = {&byte, 1}, there = {ENTRY_TEXT, 1};
  if (process_vm_readv(1, &here, 1, &there, 1, 0) > 0)
    breach("process_vm_readv");
  if (process_vm_writev(1, &here, 1, &there, 1, 0) > 0)
    breach("process_vm_writev");
  done("vm");
}

static void try_pidfd(void)
{
  int pidfd = (int)syscall(SYS_pidfd_open, 1, 0);
  for (int fd = 0; pidfd >= 0 && fd < 32; fd++)
    if (syscall(SYS_pidfd_getfd, pidfd, fd, 0) >= 0)
      breach("pidfd_getfd");
  done("pidfd");
}

/* Writes a forged end of the stream wherever a descriptor of PID 1 opens. What
 * can be opened (a pipe, under gVisor) must not be the stream: the harness checks that. */
static void try_fds(void)
{
  static const char forged[1024]; /* two zero blocks */
  int opened = 0;
  for (int fd = 0; fd < 64; fd++) {
    char path[64];
    snprintf(path, sizeof path, "/proc/1/fd/%d", fd);
    int to = open(path, O_WRONLY | O_NONBLOCK);
    if (to < 0)
      continue;
    opened++;
    if (fd <= 1)
      breach("open of the stream's descriptor");
    if (write(to, "FORGED", 6) == 6)
      (void)!write(to, forged, sizeof forged);
    close(to);
  }
  done("fds");
}

/* Forks until it cannot, or LIMIT; the children stay. */
static void forks(int limit)
{
  int n = 0;
  for (; n < limit; n++) {
    pid_t pid = fork();
    if (pid == 0)
      for (;;)
        pause();
    if (pid < 0)
      break;
  }
  printf("forks %d: %s\n", n, n < limit ? strerror(errno) : "no limit");
  fflush(stdout);
  exit(n < limit ? 3 : 4);
}

/* A process that is never the same for long: each generation makes the next in
 * a session of its own and ends. */
static void runner(void)
{
  for (;;) {
    pid_t pid = fork();
    if (pid > 0)
      _exit(0);
    if (pid == 0)
      setsid();
    else
      usleep(1000);
  }
}

static void start_runners(int n)
{
  for (int i = 0; i < n; i++)
    if (fork() == 0)
      runner();
  exit(0);
}

static void fill(const char *path)
{
  static char block[65536];
  memset(block, 'x', sizeof block);
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  size_t n = sizeof block;
  while (n > 0 && fd >= 0) {
    ssize_t put = write(fd, block, n);
    if (put < 0 && errno == ENOSPC)
      n /= 2;
    else if (put < 0)
      break;
  }
  printf("fill: %s\n", strerror(errno));
  exit(errno == ENOSPC ? 5 : 6);
}

static void deep(int depth)
{
  for (int i = 0; i < depth; i++)
    if (mkdir("d", 0755) != 0 || chdir("d") != 0)
      break;
  int fd = open("leaf.txt", O_WRONLY | O_CREAT, 0644);
  if (fd >= 0)
    (void)!write(fd, "deep", 4);
  exit(0);
}

/* One CONNECT through the proxy of the environment, then an echo. */
static void dial(const char *extra)
{
  const char *proxy = getenv("HTTPS_PROXY");
  int port = 0;
  if (!proxy || sscanf(proxy, "http://127.0.0.1:%d", &port) != 1) {
    puts("dial: no proxy");
    exit(8);
  }
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0) {
    printf("dial: connect: %s\n", strerror(errno));
    exit(9);
  }
  char text[4096];
  int n = snprintf(text, sizeof text, "CONNECT pkg.example:443 HTTP/1.1\r\nHost: pkg.example:443\r\n%s%s\r\nearly", extra,
                   *extra ? "\r\n" : "");
  (void)!write(fd, text, (size_t)n);
  size_t got = 0;
  for (ssize_t part; got < sizeof text - 1 && (part = read(fd, text + got, sizeof text - 1 - got)) > 0;)
    got += (size_t)part;
  text[got] = '\0';
  printf("dial: %s\n", text);
  exit(0);
}

static void ignore_signals(void)
{
  for (int sig = 1; sig < 65; sig++)
    signal(sig, SIG_IGN);
  puts("ignoring");
  fflush(stdout);
  for (;;)
    pause();
}

int main(int argc, char **argv)
{
  const char *verb = argc > 1 ? argv[1] : "";
  const char *arg = argc > 2 ? argv[2] : "";
  if (strcmp(verb, "mem") == 0)
    try_mem();
  if (strcmp(verb, "ptrace") == 0)
    try_ptrace();
  if (strcmp(verb, "vm") == 0)
    try_vm();
  if (strcmp(verb, "pidfd") == 0)
    try_pidfd();
  if (strcmp(verb, "fds") == 0)
    try_fds();
  if (strcmp(verb, "forks") == 0)
    forks(atoi(arg));
  if (strcmp(verb, "runners") == 0)
    start_runners(atoi(arg));
  if (strcmp(verb, "fill") == 0)
    fill(arg);
  if (strcmp(verb, "deep") == 0)
    deep(atoi(arg));
  if (strcmp(verb, "dial") == 0)
    dial(arg);
  if (strcmp(verb, "ignore") == 0)
    ignore_signals();
  fprintf(stderr, "hostile: no verb %s\n", verb);
  return 64;
}
