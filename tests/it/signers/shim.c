/* A PKCS #11 module in front of another one (SHIM_MODULE). It does at some functions what the files in
 * SHIM_ORDERS say: the first line of the file with the function's name is taken away and followed.
 *
 *   0x30          return this code, without the module
 *   later 0x30    the same after half a second
 *   sleep 500     wait so many milliseconds, then call the module
 *   flip          call the module, then change one bit of what it gave
 *   close         close all sessions of the slot behind everybody's back, then call the module
 *   sessions 3    (C_GetTokenInfo) so many sessions at most
 *   nonsense      (C_GetTokenInfo) a time that is none, of a token that is initialised
 *   final         (C_GetTokenInfo) one more try of the PIN
 *
 * Every call of such a function is a line in the file `log`. */

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned long word;
typedef word (*function)();

enum { INITIALIZE = 0, GET_FUNCTION_LIST = 3, GET_TOKEN_INFO = 6, OPEN_SESSION = 12, CLOSE_SESSION = 13,
       CLOSE_ALL = 14, GET_SESSION_INFO = 15, LOGIN = 18, FIND_INIT = 26, SIGN_INIT = 42, SIGN = 43,
       VERIFY_INIT = 48, GENERATE_KEY_PAIR = 59, FUNCTIONS = 68 };

struct list { unsigned char version[2]; function functions[FUNCTIONS]; };

struct token_info {
  unsigned char label[32], manufacturer[32], model[16], serial[16];
  word flags, max_sessions, sessions, max_rw_sessions, rw_sessions, max_pin, min_pin, memory[4];
  unsigned char hardware[2], firmware[2], time[16];
};

static struct list *module, own;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void path(char *out, const char *name) { snprintf(out, 512, "%s/%s", getenv("SHIM_ORDERS"), name); }

/* Notes the call and takes the next order, or none. */
static void order(const char *name, char *line) {
  char file[512], rest[4096];
  pthread_mutex_lock(&lock);
  path(file, "log");
  FILE *log = fopen(file, "a");
  fprintf(log, "%s\n", name);
  fclose(log);
  line[0] = 0;
  path(file, name);
  FILE *orders = fopen(file, "r");
  if (orders) {
    if (fgets(line, 64, orders)) {
      size_t length = fread(rest, 1, sizeof rest, orders);
      fclose(orders);
      orders = fopen(file, "w");
      fwrite(rest, 1, length, orders);
    }
    fclose(orders);
  }
  pthread_mutex_unlock(&lock);
}

static void close_all(word session) {
  word info[4];
  if (module->functions[GET_SESSION_INFO](session, info) == 0) module->functions[CLOSE_ALL](info[0]);
}

/* Follows the order as far as it comes before the call; 1 when there is to be none. */
static int before(const char *name, char *line, word *code, word session) {
  order(name, line);
  if (!strncmp(line, "0x", 2)) {
    *code = strtoul(line, NULL, 16);
    return 1;
  }
  if (!strncmp(line, "later", 5)) {
    usleep(500000);
    *code = strtoul(line + 5, NULL, 16);
    return 1;
  }
  if (!strncmp(line, "sleep", 5)) usleep(1000 * strtoul(line + 5, NULL, 10));
  if (!strncmp(line, "close", 5)) close_all(session);
  return 0;
}

#define FORWARD(NAME, INDEX, PARAMETERS, ARGUMENTS, SESSION)                   \
  static word NAME PARAMETERS {                                                \
    char line[64];                                                             \
    word code;                                                                 \
    if (before("C_" #NAME, line, &code, SESSION)) return code;                 \
    return module->functions[INDEX] ARGUMENTS;                                 \
  }

FORWARD(Initialize, INITIALIZE, (void *arguments), (arguments), 0)
FORWARD(OpenSession, OPEN_SESSION, (word slot, word flags, void *data, void *notify, word *session),
        (slot, flags, data, notify, session), 0)
FORWARD(CloseSession, CLOSE_SESSION, (word session), (session), session)
FORWARD(Login, LOGIN, (word session, word user, void *pin, word length), (session, user, pin, length), session)
FORWARD(FindObjectsInit, FIND_INIT, (word session, void *template, word count), (session, template, count), session)
FORWARD(SignInit, SIGN_INIT, (word session, void *mechanism, word key), (session, mechanism, key), session)
FORWARD(VerifyInit, VERIFY_INIT, (word session, void *mechanism, word key), (session, mechanism, key), session)
FORWARD(GenerateKeyPair, GENERATE_KEY_PAIR,
        (word session, void *mechanism, void *public, word publics, void *private, word privates, word *a, word *b),
        (session, mechanism, public, publics, private, privates, a, b), session)

/* The length is asked for first: orders are for the call that signs. */
static word Sign(word session, unsigned char *data, word length, unsigned char *signature, word *octets) {
  char line[64] = "";
  word code;
  if (signature && before("C_Sign", line, &code, session)) return code;
  code = module->functions[SIGN](session, data, length, signature, octets);
  if (!strncmp(line, "flip", 4) && code == 0) signature[*octets / 2] ^= 1;
  return code;
}

static word GetTokenInfo(word slot, struct token_info *info) {
  char line[64];
  word code;
  if (before("C_GetTokenInfo", line, &code, 0)) return code;
  code = module->functions[GET_TOKEN_INFO](slot, info);
  if (!strncmp(line, "sessions", 8)) info->max_sessions = strtoul(line + 8, NULL, 10);
  if (!strncmp(line, "final", 5)) info->flags |= 0x20000;
  if (!strncmp(line, "nonsense", 8) && info->flags & 0x400) {
    info->flags |= 0x40;
    memset(info->time, 'x', sizeof info->time);
  }
  return code;
}

word C_GetFunctionList(struct list **out) {
  if (!module) {
    void *library = dlopen(getenv("SHIM_MODULE"), RTLD_NOW);
    if (!library) return 5;
    function get = (function)dlsym(library, "C_GetFunctionList");
    if (!get || get(&module) != 0) return 5;
    own = *module;
    own.functions[INITIALIZE] = (function)Initialize;
    own.functions[GET_FUNCTION_LIST] = (function)C_GetFunctionList;
    own.functions[GET_TOKEN_INFO] = (function)GetTokenInfo;
    own.functions[OPEN_SESSION] = (function)OpenSession;
    own.functions[CLOSE_SESSION] = (function)CloseSession;
    own.functions[LOGIN] = (function)Login;
    own.functions[FIND_INIT] = (function)FindObjectsInit;
    own.functions[SIGN_INIT] = (function)SignInit;
    own.functions[SIGN] = (function)Sign;
    own.functions[VERIFY_INIT] = (function)VerifyInit;
    own.functions[GENERATE_KEY_PAIR] = (function)GenerateKeyPair;
  }
  *out = &own;
  return 0;
}
