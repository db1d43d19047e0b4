/* Faults of the file system on purpose, under whatever a process does: Python, SQLite, C.
 *
 * Every call that changes a file below one folder is an instant. They are counted and noted, and at
 * the n-th of those that a mask asks for something goes wrong. Loaded by LD_PRELOAD; nothing
 * happens until `faults_arm` is called.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { MAKE = 1, WRITE = 2, SYNC = 4, NAME = 8, REMOVE = 16 };
enum { NONE, KILL, FAIL_ONCE, FAIL_ON, SHORT, SLOW };

static char root[PATH_MAX];
static size_t root_length;
static int fault, mask, number, notes = -1;
static long at, count;
static double shift;

void faults_arm(const char *folder, int fault_, int mask_, long at_, int number_, const char *noted) {
    root_length = (size_t)snprintf(root, sizeof root, "%s", folder);
    mask = mask_, at = at_, number = number_, count = 0, fault = fault_;
    notes = (int)syscall(SYS_openat, AT_FDCWD, noted, O_WRONLY | O_CREAT | O_APPEND, 0600);
}

void faults_clock(double seconds) { shift = seconds; }

static int below(const char *path) {
    return !strncmp(path, root, root_length) && (!path[root_length] || path[root_length] == '/');
}

static const char *name_of(int descriptor, char *into) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, into, PATH_MAX - 1);
    into[length > 0 ? length : 0] = 0;
    return into[0] == '/' ? into : "/"; /* a socket is no file of a folder */
}

static int is_inside(int folder, const char *path) {
    char name[PATH_MAX];
    if (!root_length) return 0;
    if (path && path[0] == '/') return below(path);
    if (folder != AT_FDCWD) return below(name_of(folder, name));
    return getcwd(name, sizeof name) && below(name);
}

static void note(const char *kind, const char *path) {
    char line[PATH_MAX + 64];
    int length = snprintf(line, sizeof line, "%s %s\n", kind, path);
    if (notes >= 0) (void)!syscall(SYS_write, notes, line, (size_t)length);
}

static void die(void) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

/* Say whether the call goes wrong, after the fault of this instant; errno has what went wrong. */
static int instant(int kind, const char *told, int folder, const char *path) {
    if (!is_inside(folder, path)) return 0;
    note(told, path ? path : "");
    long now = kind & mask ? __atomic_add_fetch(&count, 1, __ATOMIC_SEQ_CST) : 0;
    if (fault == SLOW) {
        struct timespec wait = {0, number * 1000000L};
        nanosleep(&wait, NULL);
    }
    if (!now) return 0;
    if (fault == KILL && now == at) die();
    if ((fault == FAIL_ONCE && now == at) || (fault == FAIL_ON && now >= at)) {
        errno = number;
        return 1;
    }
    return 0;
}

/* How much of a write is done: all of it, or half; a kill may come after that half. */
static size_t part(int descriptor, size_t size, int *dies) {
    char name[PATH_MAX];
    *dies = 0;
    if (!root_length || size < 2 || !below(name_of(descriptor, name))) return size;
    if (fault == SHORT) return (size + 1) / 2;
    if (fault == NONE || fault == KILL) note("half", name);
    if (fault == KILL) *dies = __atomic_add_fetch(&count, 1, __ATOMIC_SEQ_CST) == at;
    if (fault == FAIL_ON && mask & WRITE && count + 1 == at) return size / 2;
    return *dies ? size / 2 : size;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) real = NEXT(name)

static int is_written(int flags) { return (flags & (O_CREAT | O_TRUNC)) != 0; }

#define OPENING(name, folder, ...) \
    mode_t mode = 0; \
    if (flags & (O_CREAT | O_TMPFILE)) { \
        va_list rest; \
        va_start(rest, flags); \
        mode = va_arg(rest, mode_t); \
        va_end(rest); \
    } \
    REAL(name); \
    if (is_written(flags) && instant(MAKE, "open", folder, path)) return -1; \
    return real(__VA_ARGS__, flags, mode)

int open(const char *path, int flags, ...) { OPENING(open, AT_FDCWD, path); }
int open64(const char *path, int flags, ...) { OPENING(open64, AT_FDCWD, path); }
int openat(int folder, const char *path, int flags, ...) { OPENING(openat, folder, folder, path); }
int openat64(int folder, const char *path, int flags, ...) {
    OPENING(openat64, folder, folder, path);
}

static int is_writing(const char *told, int descriptor) {
    char name[PATH_MAX];
    return root_length && instant(WRITE, told, AT_FDCWD, name_of(descriptor, name));
}

#define WRITING(name, ...) \
    int dies; \
    REAL(name); \
    if (is_writing("write", descriptor)) return -1; \
    size = part(descriptor, size, &dies); \
    ssize_t done = real(__VA_ARGS__); \
    if (dies) die(); \
    return done

ssize_t write(int descriptor, const void *data, size_t size) {
    WRITING(write, descriptor, data, size);
}
ssize_t pwrite(int descriptor, const void *data, size_t size, off_t place) {
    WRITING(pwrite, descriptor, data, size, place);
}
ssize_t pwrite64(int descriptor, const void *data, size_t size, off64_t place) {
    WRITING(pwrite64, descriptor, data, size, place);
}
ssize_t writev(int descriptor, const struct iovec *parts, int n_parts) {
    REAL(writev);
    return is_writing("write", descriptor) ? -1 : real(descriptor, parts, n_parts);
}
ssize_t sendfile(int descriptor, int source, off_t *place, size_t size) {
    REAL(sendfile);
    return is_writing("write", descriptor) ? -1 : real(descriptor, source, place, size);
}
ssize_t sendfile64(int descriptor, int source, off64_t *place, size_t size) {
    REAL(sendfile64);
    return is_writing("write", descriptor) ? -1 : real(descriptor, source, place, size);
}
int ftruncate(int descriptor, off_t size) {
    REAL(ftruncate);
    return is_writing("truncate", descriptor) ? -1 : real(descriptor, size);
}
int ftruncate64(int descriptor, off64_t size) {
    REAL(ftruncate64);
    return is_writing("truncate", descriptor) ? -1 : real(descriptor, size);
}

/* A kill is no loss of power: what a disk would be asked to hold, the system holds as well. */
static int synced(int descriptor) {
    char name[PATH_MAX];
    return root_length && instant(SYNC, "sync", AT_FDCWD, name_of(descriptor, name)) ? -1 : 0;
}
int fsync(int descriptor) { return synced(descriptor); }
int fdatasync(int descriptor) { return synced(descriptor); }

#define ON_PATH(name, kind, folder, path, parameters, ...) \
    int name parameters { \
        REAL(name); \
        return instant(kind, #name, folder, path) ? -1 : real(__VA_ARGS__); \
    }
ON_PATH(rename, NAME, AT_FDCWD, to, (const char *from, const char *to), from, to)
ON_PATH(renameat, NAME, there, to, (int here, const char *from, int there, const char *to), here,
        from, there, to)
ON_PATH(link, MAKE, AT_FDCWD, to, (const char *from, const char *to), from, to)
ON_PATH(linkat, MAKE, there, to,
        (int here, const char *from, int there, const char *to, int flags), here, from, there, to,
        flags)
ON_PATH(unlink, REMOVE, AT_FDCWD, path, (const char *path), path)
ON_PATH(unlinkat, REMOVE, folder, path, (int folder, const char *path, int flags), folder, path,
        flags)
ON_PATH(rmdir, REMOVE, AT_FDCWD, path, (const char *path), path)
ON_PATH(mkdir, MAKE, AT_FDCWD, path, (const char *path, mode_t mode), path, mode)
ON_PATH(mkdirat, MAKE, folder, path, (int folder, const char *path, mode_t mode), folder, path,
        mode)

/* A clock on the wall that is set to another time; the one that measures is left alone. */
int clock_gettime(clockid_t clock, struct timespec *now) {
    REAL(clock_gettime);
    int failed = real(clock, now);
    if (!failed && clock == CLOCK_REALTIME) now->tv_sec += (time_t)shift;
    return failed;
}
time_t time(time_t *into) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (into) *into = now.tv_sec;
    return now.tv_sec;
}
