/* SPDX-License-Identifier: Apache-2.0 */
#include "support/dockerd.h"

#include <gio/gio.h>
#include <gio/gunixsocketaddress.h>
#include <glib/gstdio.h>
#include <string.h>
#include <unistd.h>

#define KEEPER "tests/support/dockerd.py"
#define CALL_S 120

struct QvTestDockerd {
  char *dir, *socket;
  GSubprocess *keeper;
  GDataInputStream *answers;
  GOutputStream *commands;
};

const char *qv_test_dockerd_missing(void)
{
  static const char *const PROGRAMS[] = {"dockerd", "containerd", "runsc", "python3", "unshare", "nsenter", "ip"};
  if (geteuid() != 0)
    return "a Docker engine needs root";
  for (gsize i = 0; i < G_N_ELEMENTS(PROGRAMS); i++) {
    g_autofree char *path = g_find_program_in_path(PROGRAMS[i]);
    if (path == NULL)
      return "dockerd, containerd, runsc, ip, unshare, nsenter and python3 are needed for a private engine";
  }
  return NULL;
}

static char *ask(QvTestDockerd *d, const char *command)
{
  g_autoptr(GError) error = NULL;
  g_autofree char *line = g_strconcat(command, "\n", NULL);
  g_output_stream_write_all(d->commands, line, strlen(line), NULL, NULL, &error);
  g_assert_no_error(error);
  char *answer = g_data_input_stream_read_line(d->answers, NULL, NULL, &error);
  g_assert_no_error(error);
  if (answer == NULL || g_str_has_prefix(answer, "failed"))
    g_error("private Docker engine: %s: %s", command, answer != NULL ? answer : "its keeper ended");
  return answer;
}

static void tell(QvTestDockerd *d, const char *command)
{
  g_free(ask(d, command));
}

QvTestDockerd *qv_test_dockerd_start(QvTestDockerdKind kind)
{
  static const char *const MODES[] = {"usual", "plain", "small"};
  g_autoptr(GError) error = NULL;
  QvTestDockerd *d = g_new0(QvTestDockerd, 1);
  char name[] = "/tmp/qv-docker-XXXXXX";
  g_assert_nonnull(g_mkdtemp(name));
  d->dir = g_strdup(name);
  d->socket = g_build_filename(d->dir, "docker.sock", NULL);
  const char *root = g_getenv("QUAVON_SOURCE_ROOT");
  g_autofree char *program = g_build_filename(root != NULL ? root : ".", KEEPER, NULL);
  d->keeper = g_subprocess_new(G_SUBPROCESS_FLAGS_STDIN_PIPE | G_SUBPROCESS_FLAGS_STDOUT_PIPE, &error, "python3", program,
                               d->dir, MODES[kind], NULL);
  g_assert_no_error(error);
  d->commands = g_subprocess_get_stdin_pipe(d->keeper);
  d->answers = g_data_input_stream_new(g_subprocess_get_stdout_pipe(d->keeper));
  tell(d, "start");
  return d;
}

void qv_test_dockerd_free(QvTestDockerd *d)
{
  g_autoptr(GError) error = NULL;
  if (d == NULL)
    return;
  g_output_stream_close(d->commands, NULL, &error);
  g_assert_no_error(error);
  g_subprocess_wait_check(d->keeper, NULL, &error);
  g_assert_no_error(error);
  g_assert_false(g_file_test(d->dir, G_FILE_TEST_EXISTS));
  g_object_unref(d->answers);
  g_object_unref(d->keeper);
  g_free(d->dir);
  g_free(d->socket);
  g_free(d);
}

const char *qv_test_dockerd_socket(const QvTestDockerd *d)
{
  return d->socket;
}

const char *qv_test_dockerd_dir(const QvTestDockerd *d)
{
  return d->dir;
}

void qv_test_dockerd_kill(QvTestDockerd *d)
{
  tell(d, "kill");
}

void qv_test_dockerd_kill_all(QvTestDockerd *d)
{
  tell(d, "kill-all");
}

void qv_test_dockerd_stop(QvTestDockerd *d)
{
  tell(d, "stop");
}

void qv_test_dockerd_restart(QvTestDockerd *d)
{
  tell(d, "start");
}

static GPid ask_pid(QvTestDockerd *d, const char *command)
{
  g_autofree char *answer = ask(d, command);
  return (GPid)g_ascii_strtoll(answer, NULL, 10);
}

GPid qv_test_dockerd_pid(QvTestDockerd *d)
{
  return ask_pid(d, "pid");
}

GPid qv_test_dockerd_containerd(QvTestDockerd *d)
{
  return ask_pid(d, "containerd");
}

char *qv_test_dockerd_image(QvTestDockerd *d, const char *folder, const char *architecture)
{
  g_autofree char *command = g_strdup_printf("image %s %s", folder, architecture != NULL ? architecture : "");
  return ask(d, command);
}

void qv_test_dockerd_load(QvTestDockerd *d, const char *archive)
{
  g_autofree char *command = g_strconcat("load ", archive, NULL);
  tell(d, command);
}

char *qv_test_dockerd_call(QvTestDockerd *d, const char *method, const char *path, const char *body, int *status)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(GSocketClient) client = g_socket_client_new();
  g_socket_client_set_timeout(client, CALL_S);
  g_autoptr(GSocketAddress) address = g_unix_socket_address_new(d->socket);
  g_autoptr(GSocketConnection) connection =
    g_socket_client_connect(client, G_SOCKET_CONNECTABLE(address), NULL, &error);
  g_assert_no_error(error);
  g_autofree char *request = g_strdup_printf("%s %s HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                                             method, path, body != NULL ? strlen(body) : 0, body != NULL ? body : "");
  g_output_stream_write_all(g_io_stream_get_output_stream(G_IO_STREAM(connection)), request, strlen(request), NULL, NULL,
                            &error);
  g_assert_no_error(error);
  g_autoptr(GString) answer = g_string_new(NULL);
  char bytes[8192];
  gssize n;
  while ((n = g_input_stream_read(g_io_stream_get_input_stream(G_IO_STREAM(connection)), bytes, sizeof bytes, NULL,
                                  &error)) > 0)
    g_string_append_len(answer, bytes, n);
  g_assert_no_error(error);
  const char *head_end = strstr(answer->str, "\r\n\r\n");
  g_assert_true(g_str_has_prefix(answer->str, "HTTP/1."));
  g_assert_nonnull(head_end);
  if (status != NULL)
    *status = (int)g_ascii_strtoll(answer->str + strlen("HTTP/1.0 "), NULL, 10);
  return g_strdup(head_end + 4);
}
