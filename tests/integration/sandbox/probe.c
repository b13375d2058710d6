/* SPDX-License-Identifier: Apache-2.0 */
/* Stands where the entry stands: PID 1 of a sandbox, with libc alone. Reads a
 * command a line and answers with a line each; says on stdout what a hostile
 * step could find out or do. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB (1024UL * 1024)

static void kill_all_others(void)
{
  kill(-1, SIGKILL);
  while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
    ;
}

/* Children until there can be no more, at most N. */
static void do_fork(unsigned n)
{
  unsigned made = 0;
  int err = 0;
  while (made < n) {
    pid_t pid = fork();
    if (pid == 0)
      for (;;)
        pause();
    if (pid < 0) {
      err = errno;
      break;
    }
    made++;
  }
  printf("forks %u %s\n", made, err == 0 ? "none" : strerrorname_np(err));
  fflush(stdout);
  kill_all_others();
}

/* A child that touches N MiB. */
static void do_memory(unsigned n)
{
  int status = 0;
  pid_t pid = fork();
  if (pid == 0) {
    for (unsigned i = 0; i < n; i++) {
      char *bytes = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (bytes == MAP_FAILED)
        _exit(3);
      memset(bytes, (int)i + 1, MIB);
    }
    _exit(0);
  }
  waitpid(pid, &status, 0);
  printf("memory %d\n", status);
}

static void do_fill(const char *path)
{
  static char block[65536];
  unsigned long total = 0;
  int err = 0;
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (fd < 0)
    err = errno;
  memset(block, 'x', sizeof block);
  while (err == 0) {
    ssize_t n = write(fd, block, sizeof block);
    if (n < 0)
      err = errno;
    else
      total += (unsigned long)n;
  }
  if (fd >= 0)
    close(fd);
  unlink(path);
  printf("fill %lu %s\n", total / MIB, strerrorname_np(err));
}

static void do_open(const char *path, int flags)
{
  int fd = open(path, flags, 0600);
  printf("open %s\n", fd >= 0 ? "yes" : strerrorname_np(errno));
  if (fd >= 0)
    close(fd);
}

static void do_connect(const char *address)
{
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(53)};
  int fd = socket(AF_INET, SOCK_DGRAM, 0);
  inet_pton(AF_INET, address, &to.sin_addr);
  int failed = fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) != 0;
  printf("connect %s\n", failed ? strerrorname_np(errno) : "yes");
  if (fd >= 0)
    close(fd);
}

/* Within some seconds: who is cut off hears nothing at all. */
static void do_tcp(const char *address)
{
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9)};
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), err = 0;
  socklen_t n = sizeof err;
  struct pollfd waiting = {.fd = fd, .events = POLLOUT};
  inet_pton(AF_INET, address, &to.sin_addr);
  if (fd < 0 || (connect(fd, (struct sockaddr *)&to, sizeof to) != 0 && errno != EINPROGRESS))
    err = errno;
  else if (poll(&waiting, 1, 3000) == 0)
    err = ETIMEDOUT;
  else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &n) != 0)
    err = errno;
  printf("tcp %s\n", err == 0 ? "yes" : strerrorname_np(err));
  if (fd >= 0)
    close(fd);
}

static void do_egress(const char *text)
{
  struct sockaddr_un to = {.sun_family = AF_UNIX, .sun_path = "/run/quavon/egress.sock"};
  char answer[256] = "";
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  ssize_t n = -1;
  if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0 && write(fd, text, strlen(text)) > 0)
    n = read(fd, answer, sizeof answer - 1);
  printf("egress %s\n", n > 0 ? answer : n == 0 ? "end" : strerrorname_np(errno));
  if (fd >= 0)
    close(fd);
}

static void do_identity(void)
{
  printf("identity uid=%d gid=%d nnp=%d pid=%d cpus=%s\n", (int)getuid(), (int)getgid(),
         prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), (int)getpid(), getenv("QUAVON_CPUS"));
}

static void do_groups(void)
{
  gid_t list[64];
  int n = getgroups(64, list);
  printf("groups");
  for (int i = 0; i < n; i++)
    printf(" %u", (unsigned)list[i]);
  printf("\n");
}

static void do_caps(void)
{
  char line[256], out[512] = "caps";
  FILE *file = fopen("/proc/self/status", "r");
  while (file != NULL && fgets(line, sizeof line, file) != NULL) {
    line[strcspn(line, "\n")] = '\0';
    if (strncmp(line, "Cap", 3) == 0) {
      strncat(out, " ", sizeof out - strlen(out) - 1);
      strncat(out, strrchr(line, '\t') + 1, sizeof out - strlen(out) - 1);
    }
  }
  if (file != NULL)
    fclose(file);
  puts(out);
}

static void do_mode(const char *path)
{
  struct stat st;
  if (stat(path, &st) != 0)
    printf("mode %s\n", strerrorname_np(errno));
  else
    printf("mode %o %d:%d\n", (unsigned)st.st_mode & 07777, (int)st.st_uid, (int)st.st_gid);
}

/* The interfaces other than the loopback one. */
static void do_interfaces(void)
{
  char line[512];
  int n = 0;
  FILE *file = fopen("/proc/net/dev", "r");
  while (file != NULL && fgets(line, sizeof line, file) != NULL)
    n += strchr(line, ':') != NULL && strstr(line, "lo:") == NULL;
  if (file != NULL)
    fclose(file);
  printf("interfaces %d\n", n);
}

/* A program on a work tmpfs has to be executable: test suites build and run there. */
static void do_exec(const char *path)
{
  char bytes[65536];
  ssize_t n;
  int status = -1;
  int from = open("/proc/self/exe", O_RDONLY), to = open(path, O_WRONLY | O_CREAT, 0700);
  while ((n = read(from, bytes, sizeof bytes)) > 0 && write(to, bytes, (size_t)n) == n)
    ;
  close(from);
  close(to);
  pid_t pid = fork();
  if (pid == 0) {
    execl(path, path, "--true", (char *)NULL);
    _exit(126);
  }
  waitpid(pid, &status, 0);
  unlink(path);
  printf("exec %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

static void do_stderr(unsigned mib)
{
  static char block[65536];
  memset(block, 'e', sizeof block);
  for (unsigned i = 0; i < mib * 16; i++)
    if (write(2, block, sizeof block) < 0)
      break;
  if (write(2, "the last words\n", 15) < 0)
    errno = 0;
  puts("stderr done");
}

/* N MiB on stdout, and a line behind them. */
static void do_flood(unsigned mib)
{
  static char block[65536];
  memset(block, 'f', sizeof block);
  for (unsigned i = 0; i < mib * 16; i++)
    fwrite(block, 1, sizeof block, stdout);
  puts("\nflood done");
}

static void do_burn(unsigned ms)
{
  clock_t start = clock();
  while ((unsigned long)(clock() - start) / (CLOCKS_PER_SEC / 1000) < ms)
    for (volatile int i = 0; i < 100000; i++)
      ;
  puts("burnt");
}

/* Processes of every shape that outlive their parents. */
static void do_strays(void)
{
  for (int i = 0; i < 5; i++) {
    if (fork() != 0)
      continue;
    setsid();
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    if (fork() != 0)
      _exit(0);
    for (;;)
      pause();
  }
  puts("strays done");
}

static void obey(char *line)
{
  char *argument = strchr(line, ' ');
  if (argument != NULL)
    *argument++ = '\0';
  else
    argument = line + strlen(line);
  unsigned n = (unsigned)strtoul(argument, NULL, 10);
  if (strcmp(line, "echo") == 0)
    printf("echo %s\n", argument);
  else if (strcmp(line, "fork") == 0)
    do_fork(n);
  else if (strcmp(line, "memory") == 0)
    do_memory(n);
  else if (strcmp(line, "fill") == 0)
    do_fill(argument);
  else if (strcmp(line, "open") == 0)
    do_open(argument, O_WRONLY);
  else if (strcmp(line, "create") == 0)
    do_open(argument, O_WRONLY | O_CREAT);
  else if (strcmp(line, "read") == 0)
    do_open(argument, O_RDONLY);
  else if (strcmp(line, "connect") == 0)
    do_connect(argument);
  else if (strcmp(line, "tcp") == 0)
    do_tcp(argument);
  else if (strcmp(line, "egress") == 0)
    do_egress(argument);
  else if (strcmp(line, "identity") == 0)
    do_identity();
  else if (strcmp(line, "groups") == 0)
    do_groups();
  else if (strcmp(line, "caps") == 0)
    do_caps();
  else if (strcmp(line, "mode") == 0)
    do_mode(argument);
  else if (strcmp(line, "interfaces") == 0)
    do_interfaces();
  else if (strcmp(line, "exec") == 0)
    do_exec(argument);
  else if (strcmp(line, "stderr") == 0)
    do_stderr(n);
  else if (strcmp(line, "flood") == 0)
    do_flood(n);
  else if (strcmp(line, "burn") == 0)
    do_burn(n);
  else if (strcmp(line, "strays") == 0)
    do_strays();
  else if (strcmp(line, "exit") == 0)
    exit((int)n);
  else
    printf("what? %s\n", line);
}

int main(int argc, char **argv)
{
  char line[1024];
  if (argc > 1 && strcmp(argv[1], "--true") == 0)
    return 0;
  while (fgets(line, sizeof line, stdin) != NULL) {
    line[strcspn(line, "\n")] = '\0';
    obey(line);
    fflush(stdout);
  }
  return 0;
}
