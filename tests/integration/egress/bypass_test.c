/* SPDX-License-Identifier: Apache-2.0 */
/* The ways around the proxy, each with the answer that it gets and the reason; what was dialled and looked up is counted.
 *
 * A number is that of the case in vectors/README.md, section 4; f61 to f68 are the known faults of other egress proxies. The
 * last case holds that every reason code was seen. */
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hello.h"
#include "world.h"

/* Reason codes that were told to a client, or stood in the log. */
static GHashTable *seen;

static void see(const char *code)
{
  g_hash_table_add(seen, g_strdup(code));
}

static void await_reason(World *world, const char *code)
{
  g_autofree char *part = g_strdup_printf("\"reason\":\"%s\"", code);
  world_await_log(world, part);
  see(code);
}

/* Addresses that a listed name may lead to, one name each: r0.allowed.example, r1 … */
static const struct {
  const char *addresses, *verdict;
} resolved[] = {
  {"127.0.0.1", "403 address_refused"}, {"10.0.0.7", "403 address_refused"}, {"172.16.0.1", "403 address_refused"},
  {"192.168.1.1", "403 address_refused"}, {"169.254.1.1", "403 address_refused"}, {"169.254.169.254", "403 address_refused"},
  {"100.64.0.1", "403 address_refused"}, {"0.0.0.0", "403 address_refused"}, {"192.0.0.1", "403 address_refused"},
  {"198.18.0.1", "403 address_refused"}, {"224.0.0.1", "403 address_refused"}, {"240.0.0.1", "403 address_refused"},
  {"255.255.255.255", "403 address_refused"}, {"::1", "403 address_refused"}, {"fd00::7", "403 address_refused"},
  {"fe80::1", "403 address_refused"}, {"ff02::1", "403 address_refused"}, {"::ffff:127.0.0.1", "403 address_refused"},
  {"::ffff:10.0.0.7", "403 address_refused"}, {"::127.0.0.1", "403 address_refused"}, {"64:ff9b::7f00:1", "403 address_refused"},
  {"2002:7f00:1::1", "403 address_refused"}, {"2001:0:808:808:0:0:80ff:fffe", "403 address_refused"}, {"64:ff9b:1::1", "403 address_refused"},
  {"203.0.113.1", "403 address_refused"}, {"::", "403 address_refused"},
  /* f61: IPv4-compatible, IPv4-translatable, and the others in a second form */
  {"::10.0.0.7", "403 address_refused"}, {"::ffff:0:127.0.0.1", "403 address_refused"}, {"::ffff:0:10.0.0.7", "403 address_refused"},
  {"64:ff9b::a00:7", "403 address_refused"}, {"64:ff9b:1::a00:7", "403 address_refused"}, {"2002:a00:7::1", "403 address_refused"},
  {"::ffff:169.254.169.254", "403 address_refused"}, {"::ffff:100.64.0.1", "403 address_refused"},
  {W_PUBLIC " 10.0.0.7", "403 address_refused"}, {"10.0.0.7 " W_PUBLIC, "403 address_refused"}, {W_PUBLIC " ::1", "403 address_refused"},
  {W_PUBLIC, "200 "}, {W_PUBLIC6, "200 "},
  /* as many as a large registry's front has, 12 of each kind, and as many with one among them that may not be */
#define TEN_MORE(family) family "1 " family "2 " family "3 " family "4 " family "5 " family "6 " family "7 " family "8 " family "9 " family "10 "
  {TEN_MORE("11.22.34.") TEN_MORE("2a0b:2::") "11.22.34.11 2a0b:2::11 " W_PUBLIC6 " " W_PUBLIC, "200 "},
  {TEN_MORE("11.22.34.") TEN_MORE("2a0b:2::") "11.22.34.11 2a0b:2::11 10.0.0.7 " W_PUBLIC, "403 address_refused"},
  /* 72, more than are checked */
  {TEN_MORE("11.22.34.") TEN_MORE("11.22.35.") TEN_MORE("11.22.36.") TEN_MORE("2a0b:2::") TEN_MORE("2a0b:3::") TEN_MORE("2a0b:4::")
   TEN_MORE("11.22.37.") "2a0b:5::1 " W_PUBLIC, "403 address_refused"},
};

/* Heads as they stand; @ is the base64 of a right token, and nothing may be dialled unless the verdict is 200. */
static const struct {
  const char *what, *head, *verdict;
} heads[] = {
#define LINE "CONNECT " W_HOST ":443 HTTP/1.1\r\n"
#define AUTH "Proxy-Authorization: Basic @\r\n"
#define TARGET(t) "CONNECT " t " HTTP/1.1\r\n" AUTH "\r\n"
  {"1", LINE AUTH "\r\n", "200 "},
  {"2a, f65", "GET http:" "//" W_HOST "/ HTTP/1.1\r\n" AUTH "\r\n", "405 method"},
  {"2b", "OPTIONS * HTTP/1.1\r\n" AUTH "\r\n", "405 method"},
  {"2c", "TRACE / HTTP/1.1\r\n" AUTH "\r\n", "405 method"},
  {"2d", "GET / HTTP/1.1\r\n" AUTH "\r\n", "405 method"},
  {"2e", "POST http:" "//" W_HOST "/ HTTP/1.1\r\nContent-Length: 3\r\n" AUTH "\r\nabc", "405 method"},
  {"3a", "connect " W_HOST ":443 HTTP/1.1\r\n" AUTH "\r\n", "405 method"},
  {"3b", "CoNnEcT " W_HOST ":443 HTTP/1.1\r\n" AUTH "\r\n", "405 method"},
  {"4", TARGET("PKG.Allowed.EXAMPLE:443"), "200 "},
  {"5a, f61", TARGET(W_HOST ".:443"), "403 host_not_listed"},
  {"5b", TARGET(W_HOST "..:443"), "400 bad_target"},
  {"6a", TARGET(W_HOST ".evil.test:443"), "403 host_not_listed"},
  {"6b", TARGET("evil-" W_HOST ":443"), "403 host_not_listed"},
  {"6c", TARGET("allowed.example:443"), "403 host_not_listed"},
  {"6d, listed, not in the job", TARGET("other.allowed.example:443"), "403 host_not_in_job"},
  {"8a", TARGET(W_HOST ":80"), "403 port_not_listed"},
  {"8b", TARGET(W_HOST ":22"), "403 port_not_listed"},
  {"8c", TARGET(W_HOST ":6379"), "403 port_not_listed"},
  {"9a", TARGET(W_HOST ":0443"), "400 bad_target"},
  {"9b", TARGET(W_HOST ":+443"), "400 bad_target"},
  {"9c", TARGET(W_HOST ": 443"), "400 bad_head"},
  {"9d", TARGET(W_HOST ":65979"), "400 bad_target"},
  {"9e, f68", TARGET(W_HOST ":443:443"), "400 bad_target"},
  {"9f", TARGET(W_HOST ":0x1bb"), "400 bad_target"},
  {"9g", TARGET(W_HOST ":443%00"), "400 bad_target"},
  {"9h", TARGET(W_HOST ":"), "400 bad_target"},
  {"9i", TARGET(W_HOST), "400 bad_target"},
  {"10a", TARGET(W_HOST "@evil.test:443"), "400 bad_target"},
  {"10b, f68", TARGET(W_HOST ":443@evil.test:443"), "400 bad_target"},
  {"11a", TARGET("http:" "//" W_HOST ":443/"), "400 bad_target"},
  {"11b", TARGET("/"), "400 bad_target"},
  {"11c", TARGET("*"), "400 bad_target"},
  {"11d", TARGET(W_HOST ":443/x"), "400 bad_target"},
  {"11e", TARGET(W_HOST ":443?x"), "400 bad_target"},
  {"12", TARGET(W_PUBLIC ":443"), "403 address_literal"},
  {"13a", TARGET("127.0.0.1:443"), "403 address_literal"},
  {"13b", TARGET("127.1:443"), "403 address_literal"},
  {"13c", TARGET("2130706433:443"), "403 address_literal"},
  {"13d", TARGET("0x7f000001:443"), "403 address_literal"},
  {"13e", TARGET("0177.0.0.1:443"), "403 address_literal"},
  {"13f", TARGET("0:443"), "403 address_literal"},
  {"13g, f61", TARGET("127.0.0.1.:443"), "403 address_literal"},
  {"13h", TARGET("a.b.1:443"), "403 address_literal"},
  {"14a", TARGET("[::1]:443"), "403 address_literal"},
  {"14b", TARGET("[::ffff:127.0.0.1]:443"), "403 address_literal"},
  {"14c", TARGET("[64:ff9b::7f00:1]:443"), "403 address_literal"},
  {"14d", TARGET("[2002:7f00:1::]:443"), "403 address_literal"},
  {"14e", TARGET("[fe80::1%25eth0]:443"), "400 bad_target"},
  {"15a, f68", TARGET("::1:443"), "400 bad_target"},
  {"15b", TARGET("[" W_HOST "]:443"), "400 bad_target"},
  {"15c", TARGET("[::1:443"), "400 bad_target"},
  {"20a", TARGET("localhost:443"), "403 host_not_listed"},
  {"20b", TARGET("host.docker.internal:443"), "403 host_not_listed"},
  {"20c", TARGET("kubernetes.default.svc:443"), "403 host_not_listed"},
  {"20d", TARGET("metadata.google.internal:80"), "403 host_not_listed"},
  {"20e", TARGET("pkg:443"), "403 host_not_listed"},
  {"21", TARGET("127.0.0.1:3128"), "403 address_literal"},
  {"22a", TARGET("pkg%2eallowed.example:443"), "400 bad_target"},
  {"22b", TARGET("pkg_.allowed.example:443"), "400 bad_target"},
  {"22c", TARGET("pkg\\.allowed.example:443"), "400 bad_target"},
  {"22d", TARGET("pkg,allowed.example:443"), "400 bad_target"},
  {"22e", TARGET("pkg\t.allowed.example:443"), "400 bad_head"},
  {"23a", TARGET("pkg\xe3\x80\x82" "allowed.example:443"), "400 bad_head"},
  {"23b", TARGET("\xef\xbd\x90kg.allowed.example:443"), "400 bad_head"},
  {"23c", TARGET("xn--pkg.allowed.example:443"), "403 host_not_listed"},
  {"24a", TARGET("-pkg.allowed.example:443"), "400 bad_target"},
  {"24b", TARGET("pkg..allowed.example:443"), "400 bad_target"},
  {"24c", TARGET("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.example:443"), "400 bad_target"},
  {"25", LINE "Host: evil.test:443\r\n" AUTH "\r\n", "400 bad_host"},
  {"26a", LINE "Host: " W_HOST "\r\nHost: " W_HOST "\r\n" AUTH "\r\n", "400 bad_host"},
  {"26b", LINE "Host: " W_HOST ":80\r\n" AUTH "\r\n", "400 bad_host"},
  {"27a, f66", LINE "\r\n", "407 no_credentials"},
  {"27b", LINE "Proxy-Authorization: Basic am9iOkFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=\r\n\r\n", "407 token_unknown"},
  {"27c", LINE "Proxy-Authorization: Bearer @\r\n\r\n", "407 bad_credentials"},
  {"28", LINE AUTH "Proxy-Authorization: Basic eDp5\r\n\r\n", "400 two_credentials"},
  {"29a", LINE "Proxy-Authorization: Basic !!\r\n\r\n", "407 bad_credentials"},
  {"29b", LINE "Proxy-Authorization: Basic @=\r\n\r\n", "407 bad_credentials"},
  {"29c", LINE "Proxy-Authorization: Basic  @\r\n\r\n", "407 bad_credentials"},
  {"33a", "CONNECT " W_HOST ":443 HTTP/1.1\n" AUTH "\r\n", "400 bad_head"},
  {"33b", LINE "A: b\r\r\n" AUTH "\r\n", "400 bad_head"},
  {"33c", LINE "A: b\r\n c\r\n" AUTH "\r\n", "400 bad_head"},
  {"33d", LINE "A : b\r\n" AUTH "\r\n", "400 bad_head"},
  {"33e", LINE "A\r\n" AUTH "\r\n", "400 bad_head"},
  {"33f", LINE ": b\r\n" AUTH "\r\n", "400 bad_head"},
  {"33g", LINE "A: \x02\r\n" AUTH "\r\n", "400 bad_head"},
  {"34a", LINE "Content-Length: 0\r\n" AUTH "\r\n", "400 body"},
  {"34b", LINE "Transfer-Encoding: chunked\r\n" AUTH "\r\n", "400 body"},
  {"34c", LINE "Content-Length: +5\r\nTransfer-Encoding: ,chunked\r\n" AUTH "\r\n", "400 body"},
  {"37a", "CONNECT " W_HOST ":443\r\n" AUTH "\r\n", "400 bad_head"},
  {"37b", "CONNECT " W_HOST ":443 HTTP/1.2\r\n" AUTH "\r\n", "505 version"},
  {"37c", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505 version"},
  {"37d", "CONNECT " W_HOST ":443 HTTP/1.1 more\r\n" AUTH "\r\n", "400 bad_head"},
  {"37e", LINE "Connection: Upgrade\r\nUpgrade: h2c\r\n" AUTH "\r\n", "200 "},
  {"37f", "CONNECT " W_HOST ":443 HTTP/1.0\r\n" AUTH "\r\n", "200 "},
  {"43", LINE "Connection: Proxy-Authorization\r\n" AUTH "\r\n", "200 "},
};

static char *with_token(const char *head, const char *token)
{
  g_autofree char *login = g_strconcat("anyone:", token, NULL);
  g_autofree char *coded = g_base64_encode((const guchar *)login, strlen(login));
  g_auto(GStrv) parts = g_strsplit(head, "@\r", -1);
  g_autofree char *behind = g_strconcat(coded, "\r", NULL);
  g_autofree char *whole = g_strjoinv(behind, parts);
  g_auto(GStrv) padded = g_strsplit(whole, "@=\r", -1);
  g_autofree char *behind_padded = g_strconcat(coded, "=\r", NULL);
  return g_strjoinv(behind_padded, padded);
}

static World *open_world(GPtrArray *rest, const char *const *more)
{
  g_autoptr(GString) list = g_string_new("QUAVON_SANDBOX_REGISTRIES=" W_HOST ",other.allowed.example,private.allowed.example@10.0.0.0/8,"
                                         "private.allowed.example@127.0.0.0/8,alias.allowed.example,twice.allowed.example,missing.allowed.example,"
                                         "closed.allowed.example:9,stalled.allowed.example:446,silent.allowed.example,self.allowed.example:3128@127.0.0.1,"
                                         "mute.allowed.example:444,both.allowed.example,wide4.allowed.example@0.0.0.0/0,wide6.allowed.example@::/0,"
                                         "wide0.allowed.example@0.0.0.0/0,local.allowed.example@169.254.0.0/16,mixed.allowed.example@10.0.0.0/8");
  for (guint i = 0; i < G_N_ELEMENTS(resolved); i++) {
    g_autofree char *name = g_strdup_printf("r%u.allowed.example", i);
    world_name(name, resolved[i].addresses, NULL);
    g_string_append_printf(list, ",%s", name);
  }
  g_ptr_array_add(rest, g_strdup(list->str));
  for (; more != NULL && *more != NULL; more++)
    g_ptr_array_add(rest, g_strdup(*more));
  g_ptr_array_add(rest, NULL);
  world_name(W_HOST, W_PUBLIC, NULL);
  return world_new((const char *const *)rest->pdata);
}

static char *ask(World *world, const char *head, gsize n)
{
  int fd = world_connect(world);
  world_send(fd, head, n);
  g_autofree char *answer = world_head(fd);
  char *verdict = world_verdict(answer);
  if (strchr(verdict, ' ') != NULL)
    see(strchr(verdict, ' ') + 1);
  g_assert_true(!g_str_has_prefix(verdict, "407") || strstr(answer, "\r\nProxy-Authenticate: Basic realm=") != NULL); /* f66 */
  if (!g_str_has_prefix(verdict, "200"))
    world_await_end(fd); /* closed after a refusal, whatever comes */
  close(fd);
  return verdict;
}

static char *ask_target(World *world, const char *target, const char *token)
{
  g_autofree char *request = world_request(target, token);
  return ask(world, request, strlen(request));
}

static void test_heads(void)
{
  g_autoptr(GPtrArray) rest = g_ptr_array_new_with_free_func(g_free);
  World *world = open_world(rest, NULL);
  static const char *const hosts[] = {W_HOST ":443", NULL};
  g_autofree char *token = world_token(world, hosts, NULL, 600000);
  guint opened = 0, arrived = world_arrivals();
  for (gsize i = 0; i < G_N_ELEMENTS(heads); i++) {
    g_autofree char *head = with_token(heads[i].head, token);
    g_test_message("row %s", heads[i].what);
    g_autofree char *verdict = ask(world, head, strlen(head));
    g_assert_cmpstr(verdict, ==, heads[i].verdict);
    opened += strcmp(verdict, "200 ") == 0;
  }
  g_assert_cmpuint(world_arrivals() - arrived, ==, opened);
  g_autofree char *asked = world_asked();
  g_assert_cmpstr(asked, ==, W_HOST); /* no other name was looked up, and none with a search domain behind it */
  g_test_message("%zu rows", G_N_ELEMENTS(heads));

  /* 22, 33: NUL; 39: over the caps, in one line and in many */
  static const char nul[] = "CONNECT " W_HOST "\0:443 HTTP/1.1\r\n\r\n";
  g_autofree char *nul_verdict = ask(world, nul, sizeof nul - 1);
  g_assert_cmpstr(nul_verdict, ==, "400 bad_head");
  g_autoptr(GString) large = g_string_new(LINE "A: ");
  for (guint i = 0; i < 64 * 1024; i++)
    g_string_append_c(large, 'x');
  g_autofree char *large_verdict = ask(world, large->str, large->len);
  g_assert_cmpstr(large_verdict, ==, "431 head_too_long");
  g_string_assign(large, LINE);
  for (guint i = 0; i < 200; i++)
    g_string_append(large, "A: b\r\n");
  g_autofree char *many_verdict = ask(world, large->str, large->len);
  g_assert_cmpstr(many_verdict, ==, "431 head_too_long");
  world_free(world);
}

static void test_addresses(void)
{
  g_autoptr(GPtrArray) rest = g_ptr_array_new_with_free_func(g_free);
  World *world = open_world(rest, NULL);
  guint opened = 0, arrived = world_arrivals();
  for (guint i = 0; i < G_N_ELEMENTS(resolved); i++) {
    g_autofree char *host = g_strdup_printf("r%u.allowed.example:443", i);
    g_autofree char *token = world_token(world, (const char *const[]){host, NULL}, NULL, 600000);
    g_autofree char *verdict = ask_target(world, host, token);
    g_test_message("%s -> %s", resolved[i].addresses, verdict);
    g_assert_cmpstr(verdict, ==, resolved[i].verdict);
    opened += strcmp(verdict, "200 ") == 0;
  }
  g_assert_cmpuint(world_arrivals() - arrived, ==, opened);

  static const char *const others[] = {"private.allowed.example:443", "alias.allowed.example:443", "twice.allowed.example:443",
                                       "missing.allowed.example:443", "closed.allowed.example:9", "both.allowed.example:443",
                                       "not-listed.example:443", "wide4.allowed.example:443", "wide6.allowed.example:443",
                                       "wide0.allowed.example:443", "local.allowed.example:443", "mixed.allowed.example:443",
                                       "self.allowed.example:3128", NULL};
  g_autofree char *other = world_token(world, others, NULL, 600000);
  static const struct {
    const char *name, *addresses, *later, *target, *verdict;
  } rows[] = {
    {"private.allowed.example", W_PRIVATE, NULL, "private.allowed.example:443", "200 "},      /* named by its range */
    {"target.example", W_PUBLIC, NULL, NULL, NULL},
    {"alias.allowed.example", "alias target.example", NULL, "alias.allowed.example:443", "200 "}, /* 19 */
    {"twice.allowed.example", W_PUBLIC, W_PRIVATE, "twice.allowed.example:443", "200 "},     /* 18, f63: one look-up */
    {"missing.allowed.example", "", NULL, "missing.allowed.example:443", "502 name_not_found"},
    {"closed.allowed.example", W_PUBLIC, NULL, "closed.allowed.example:9", "502 connect_failed"},
    {"both.allowed.example", "2a0b:1::99 " W_PUBLIC, NULL, "both.allowed.example:443", "200 "}, /* the next address */
    {"not-listed.example", W_PUBLIC, NULL, "not-listed.example:443", "403 host_not_listed"},
    {"self.allowed.example", "127.0.0.1", NULL, "self.allowed.example:3128", "403 own_address"}, /* 21 */
    /* f62: a range that allows opens nothing that it does not name */
    {"wide4.allowed.example", W_PRIVATE, NULL, "wide4.allowed.example:443", "403 address_refused"},
    {"wide6.allowed.example", "fd00::7", NULL, "wide6.allowed.example:443", "403 address_refused"},
    {"wide0.allowed.example", "127.0.0.1", NULL, "wide0.allowed.example:443", "403 address_refused"},
    {"local.allowed.example", "169.254.169.254", NULL, "local.allowed.example:443", "403 address_refused"},
    {"mixed.allowed.example", W_PRIVATE " 192.168.1.1", NULL, "mixed.allowed.example:443", "403 address_refused"},
  };
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
    world_name(rows[i].name, rows[i].addresses, rows[i].later);
    g_autofree char *verdict = rows[i].target != NULL ? ask_target(world, rows[i].target, other) : NULL;
    g_test_message("%s -> %s", rows[i].name, verdict ?: "-");
    g_assert_cmpstr(verdict, ==, rows[i].verdict);
  }
  g_assert_cmpuint(world_lookups("twice.allowed.example"), ==, 1);
  g_assert_cmpuint(world_lookups("not-listed.example"), ==, 0);
  g_assert_cmpuint(world_lookups("missing.allowed.example.search.example"), ==, 0);
  world_free(world);
}

static void test_times(void)
{
  static const char *const quick[] = {"QUAVON_EGRESS_HEAD_MS=3000", "QUAVON_EGRESS_CONNECT_MS=5000", "QUAVON_EGRESS_IDLE_MS=4000", NULL};
  g_autoptr(GPtrArray) rest = g_ptr_array_new_with_free_func(g_free);
  World *world = open_world(rest, quick);
  static const char *const hosts[] = {W_HOST ":443", "stalled.allowed.example:446", "silent.allowed.example:443", NULL};
  g_autofree char *token = world_token(world, hosts, NULL, 600000);
  world_name("stalled.allowed.example", W_PUBLIC, NULL);
  world_name_silent("silent.allowed.example");
  g_autofree char *stalled = ask_target(world, "stalled.allowed.example:446", token);
  g_assert_cmpstr(stalled, ==, "504 connect_timeout");
  g_autofree char *silent = ask_target(world, "silent.allowed.example:443", token);
  g_assert_cmpstr(silent, ==, "504 resolve_timeout");
  /* 38: half a head; nothing at all; no hello; an idle tunnel */
  g_autofree char *half = ask(world, LINE, strlen(LINE));
  g_assert_cmpstr(half, ==, "408 head_timeout");
  int fd = world_connect(world);
  g_assert_cmpuint(world_await_end(fd), ==, 0);
  close(fd);
  g_autofree char *request = world_request(W_HOST ":443", token);
  fd = world_connect(world);
  world_send(fd, request, strlen(request));
  g_free(world_head(fd));
  g_assert_cmpuint(world_await_end(fd), ==, 7); /* a TLS alert */
  close(fd);
  await_reason(world, "hello_timeout");
  fd = world_connect(world);
  world_send(fd, request, strlen(request));
  g_free(world_head(fd));
  g_autoptr(GByteArray) hello = t_hello(W_HOST);
  g_autofree guint8 *back = g_malloc(hello->len);
  world_send(fd, hello->data, hello->len);
  g_assert_true(world_read(fd, back, hello->len));
  g_assert_cmpuint(world_await_end(fd), ==, 0);
  close(fd);
  await_reason(world, "idle");
  world_free(world);
}

/* What goes first into the tunnel (41, f64): cut, with an alert, and not a byte at the far side. */
static void hello_row(World *world, const char *token, GByteArray *bytes, const char *reason)
{
  char alert[7];
  g_autofree char *request = world_request(W_HOST ":443", token);
  int fd = world_connect(world);
  world_send(fd, request, strlen(request));
  g_autofree char *head = world_head(fd);
  g_autofree char *verdict = world_verdict(head);
  g_assert_cmpstr(verdict, ==, "200 ");
  world_send(fd, bytes->data, bytes->len);
  g_test_message("%s", reason);
  g_assert_true(world_read(fd, alert, 7));
  g_assert_cmpint(alert[0], ==, 21);
  g_assert_cmpint(alert[5], ==, 2);
  g_assert_cmpuint(world_await_end(fd), ==, 0);
  close(fd);
  await_reason(world, reason);
  g_byte_array_unref(bytes);
}

static GByteArray *raw(const char *text)
{
  GByteArray *bytes = g_byte_array_new();
  g_byte_array_append(bytes, (const guint8 *)text, (guint)strlen(text));
  return bytes;
}

static void test_hellos(void)
{
  g_autoptr(GPtrArray) rest = g_ptr_array_new_with_free_func(g_free);
  World *world = open_world(rest, NULL);
  static const char *const hosts[] = {W_HOST ":443", NULL};
  g_autofree char *token = world_token(world, hosts, NULL, 600000), *brief = world_token(world, hosts, NULL, 10000);
  int expiring = world_tunnel(world, brief);
  hello_row(world, token, t_hello("other.allowed.example"), "server_name");
  hello_row(world, token, t_hello(W_HOST "."), "server_name");
  hello_row(world, token, t_hello(W_HOST ".evil.test"), "server_name");
  hello_row(world, token, t_hello(NULL), "no_server_name");
  hello_row(world, token, raw("GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n"), "not_tls");
  hello_row(world, token, raw("CONNECT evil.test:443 HTTP/1.1\r\n\r\n"), "not_tls"); /* f65: a proxy behind the proxy */
  hello_row(world, token, raw("SSH-2.0-OpenSSH_9\r\n"), "not_tls");
  g_autoptr(GByteArray) twice = g_byte_array_new();
  t_server_name(twice, W_HOST, strlen(W_HOST));
  t_server_name(twice, "evil.test", 9);
  hello_row(world, token, t_hello_with(twice), "bad_hello");
  g_autoptr(GByteArray) hidden = g_byte_array_new();
  t_server_name(hidden, W_HOST, strlen(W_HOST));
  t_extension(hidden, 0xfe0d, "\0\0\1\0\1\0\0\0\0\0\0", 11);
  hello_row(world, token, t_hello_with(hidden), "encrypted_hello");

  /* In another letter case, over many records, and with bytes right behind (35): all go through as they stand. */
  g_autoptr(GByteArray) shouted = t_hello("PKG.ALLOWED.example");
  g_autoptr(GByteArray) cut = t_hello_cut(shouted, 9);
  g_byte_array_append(cut, (const guint8 *)"\x14\x03\x03\0\1\1", 6);
  g_autofree char *request = world_request(W_HOST ":443", token);
  g_autoptr(GByteArray) all = raw(request);
  g_byte_array_append(all, cut->data, cut->len);
  int fd = world_connect(world);
  world_send(fd, all->data, all->len);
  g_free(world_head(fd));
  g_autofree guint8 *back = g_malloc(cut->len);
  g_assert_true(world_read(fd, back, cut->len));
  g_assert_cmpmem(back, cut->len, cut->data, cut->len);
  /* A half-close is passed on: the echo of it is the end. */
  shutdown(fd, SHUT_WR);
  g_assert_cmpuint(world_await_end(fd), ==, 0);
  close(fd);
  /* 36: a second request behind a refused one is thrown away */
  g_autofree char *bad = world_request("evil.test:443", token);
  g_autofree char *two = g_strconcat(bad, request, NULL);
  guint arrived = world_arrivals();
  g_autofree char *verdict = ask(world, two, strlen(two));
  g_assert_cmpstr(verdict, ==, "403 host_not_listed");
  g_assert_cmpuint(world_arrivals(), ==, arrived);
  world_await_end(expiring);
  close(expiring);
  await_reason(world, "expired");
  world_free(world);
}

/* An endless answer: the far side of port 445. */
static void open_endless(World *world, const char *token)
{
  int fd = world_connect(world);
  g_autofree char *request = world_request(W_HOST ":445", token);
  world_send(fd, request, strlen(request));
  g_free(world_head(fd));
  g_autoptr(GByteArray) hello = t_hello(W_HOST);
  world_send(fd, hello->data, hello->len);
  world_await_end(fd);
  close(fd);
}

/* 27, 30 to 32, 40: whose token, how many, how much; and how tunnels end. */
static void test_ends(void)
{
  static const char *const few[] = {"QUAVON_SANDBOX_REGISTRIES=" W_HOST "," W_HOST ":445", "QUAVON_EGRESS_MAX_TUNNELS=3",
                                    "QUAVON_EGRESS_MAX_TUNNELS_PER_TOKEN=2", "QUAVON_EGRESS_MAX_BYTES=1000000", NULL};
  static const char *const hosts[] = {W_HOST ":443", W_HOST ":445", NULL};
  world_name(W_HOST, W_PUBLIC, NULL);
  World *world = world_new(few);
  g_autofree char *late = world_token(world, hosts, NULL, -1), *theirs = world_token(world, hosts, "10.9.9.9", 600000);
  g_autofree char *one = world_token(world, hosts, NULL, 600000), *two = world_token(world, hosts, NULL, 600000);
  int fds[3] = {world_tunnel(world, one), world_tunnel(world, one), world_tunnel(world, two)};
  const struct {
    const char *token, *verdict;
  } rows[] = {{late, "407 token_expired"}, {theirs, "403 token_source"}, {one, "429 tunnels_token"}, {two, "503 tunnels_all"}};
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
    g_autofree char *verdict = ask_target(world, W_HOST ":443", rows[i].token);
    g_assert_cmpstr(verdict, ==, rows[i].verdict);
  }
  close(fds[0]);
  await_reason(world, "closed");
  const struct linger now = {.l_onoff = 1};
  setsockopt(fds[1], SOL_SOCKET, SO_LINGER, &now, sizeof now);
  close(fds[1]);
  await_reason(world, "failed");
  open_endless(world, one);
  g_autofree char *over = ask_target(world, W_HOST ":443", one);
  g_assert_cmpstr(over, ==, "403 bytes");
  world_revoke(world, two, TRUE);
  world_await_end(fds[2]);
  close(fds[2]);
  await_reason(world, "revoked");

  /* f65: nothing fails open */
  g_autofree char *three = world_token(world, hosts, NULL, 600000);
  int fd = world_tunnel(world, three);
  kill(qv_test_valkey_pid(world_valkey(world)), SIGSTOP);
  world_await_end(fd);
  close(fd);
  await_reason(world, "unconfirmed");
  g_autofree char *away = ask_target(world, W_HOST ":443", three);
  g_assert_cmpstr(away, ==, "503 store_unavailable");
  kill(qv_test_valkey_pid(world_valkey(world)), SIGCONT);
  world_free(world);
}

/* A connection that was there before the end began. */
static void test_draining(void)
{
  g_autoptr(GPtrArray) rest = g_ptr_array_new_with_free_func(g_free);
  World *world = open_world(rest, NULL);
  static const char *const hosts[] = {W_HOST ":443", NULL};
  g_autofree char *token = world_token(world, hosts, NULL, 600000);
  int kept = world_tunnel(world, token), fd = world_connect(world);
  g_autofree char *request = world_request(W_HOST ":443", token);
  world_send(fd, request, 1);
  g_assert_true(world_tunnel_lives(kept)); /* what came before was seen before: it was accepted */
  kill(world_proxy_pid(world), SIGTERM);
  world_await_log(world, "draining");
  world_send(fd, request + 1, strlen(request) - 1);
  g_autofree char *head = world_head(fd);
  g_autofree char *verdict = world_verdict(head);
  g_assert_cmpstr(verdict, ==, "503 draining");
  see("draining");
  close(fd);
  close(kept);
  world_free(world);
}

static void test_codes(void)
{
  static const char *const codes[] = {
#define QV_REASON(name, code, status, alert, text) code,
#include "egress/reasons.def"
#undef QV_REASON
  };
  guint rows = G_N_ELEMENTS(heads) + G_N_ELEMENTS(resolved);
  g_test_message("%u rows in the two tables", rows);
  g_assert_cmpuint(rows, >=, 60);
  for (gsize i = 1; i < G_N_ELEMENTS(codes); i++)
    if (!g_hash_table_contains(seen, codes[i]))
      g_error("no row has the reason %s", codes[i]);
}

int main(int argc, char **argv)
{
  if (!world_enter())
    return 0;
  seen = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/bypass/heads", test_heads);
  g_test_add_func("/bypass/addresses", test_addresses);
  g_test_add_func("/bypass/times", test_times);
  g_test_add_func("/bypass/hellos", test_hellos);
  g_test_add_func("/bypass/ends", test_ends);
  g_test_add_func("/bypass/draining", test_draining);
  g_test_add_func("/bypass/codes", test_codes);
  return g_test_run();
}
