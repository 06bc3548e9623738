/* Makes calls on files below some folders fail, as a broken disk does, while a control file says so.

   The control file has three numbers, ended by spaces: the error, one in how many calls fails, and a bit for
   each kind of call: 1 read, 2 write, 4 flush, 8 change of names. Only Python's processes are affected: the
   commands of jobs may use the disk as they like. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>
#include "carry.h"

enum { READ = 1, WRITE = 2, FLUSH = 4, NAME = 8 };
struct control { volatile int error, one_in, kinds; };
static struct control *control;
static const char *folders; /* separated by colons */
static __thread unsigned state;

#define NEXT(name) ({ static __typeof__(&name) next; if (!next) next = dlsym(RTLD_NEXT, #name); next; })

__attribute__((constructor)) static void load(void) {
    char program[PATH_MAX];
    ssize_t size = readlink("/proc/self/exe", program, sizeof program - 1);
    if (size < 0 || (program[size] = 0, !strstr(program, "python"))) return;
    folders = getenv("BROKEN_DISK_FOLDERS");
    const char *path = getenv("BROKEN_DISK_CONTROL");
    if (!folders || !path) return;
    int handle = NEXT(open)(path, O_RDONLY | O_CLOEXEC);
    if (handle < 0) return;
    void *found = mmap(NULL, sizeof *control, PROT_READ, MAP_SHARED, handle, 0);
    close(handle);
    if (found != MAP_FAILED) control = found;
}

static int is_chosen(int kind) {
    if (!control || !control->error || !(control->kinds & kind)) return 0;
    if (!state) state = (unsigned)(getpid() * 2654435761u) ^ (unsigned)(size_t)&state;
    state = state * 1103515245u + 12345u;
    return (state >> 16) % (unsigned)control->one_in == 0;
}

static int is_below(const char *path) {
    for (const char *folder = folders; *folder; folder += *folder == ':') {
        size_t size = strcspn(folder, ":");
        if (strncmp(path, folder, size) == 0 && (path[size] == '/' || !path[size])) return 1;
        folder += size;
    }
    return 0;
}

static int fails_at(int kind, int handle) {
    if (!is_chosen(kind)) return 0;
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0 || (path[size] = 0, !is_below(path))) return 0;
    errno = control->error;
    return 1;
}

static int fails_on(int kind, int parent, const char *name) {
    if (!name || !is_chosen(kind)) return 0;
    if (name[0] != '/' && parent != AT_FDCWD) return fails_at(kind, parent);
    char path[PATH_MAX];
    if (name[0] != '/' && (!getcwd(path, sizeof path) || (strncat(path, "/", 2), 0))) return 0;
    if (!is_below(name[0] == '/' ? name : path)) return 0;
    errno = control->error;
    return 1;
}

#define MODE(flags) mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { va_list more; va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); }
#define WRITES(flags) (((flags) & O_ACCMODE) != O_RDONLY ? NAME : READ)

#define OPEN(name) int name(const char *path, int flags, ...) { MODE(flags) \
    return fails_on(WRITES(flags), AT_FDCWD, path) ? -1 : NEXT(name)(path, flags, mode); }
OPEN(open) OPEN(open64)
#define OPENAT(name) int name(int parent, const char *path, int flags, ...) { MODE(flags) \
    return fails_on(WRITES(flags), parent, path) ? -1 : NEXT(name)(parent, path, flags, mode); }
OPENAT(openat) OPENAT(openat64)

ssize_t read(int handle, void *data, size_t size) {
    return fails_at(READ, handle) ? -1 : NEXT(read)(handle, data, size); }
#define PREAD(name, offset_t) ssize_t name(int handle, void *data, size_t size, offset_t at) { \
    return fails_at(READ, handle) ? -1 : NEXT(name)(handle, data, size, at); }
PREAD(pread, off_t) PREAD(pread64, off64_t)
ssize_t readv(int handle, const struct iovec *data, int count) {
    return fails_at(READ, handle) ? -1 : NEXT(readv)(handle, data, count); }
DIR *opendir(const char *path) { return fails_on(READ, AT_FDCWD, path) ? NULL : NEXT(opendir)(path); }
DIR *fdopendir(int handle) { return fails_at(READ, handle) ? NULL : NEXT(fdopendir)(handle); }

/* A disk that becomes full takes the first part of what is written. */
ssize_t write(int handle, const void *data, size_t size) {
    if (!fails_at(WRITE, handle)) return NEXT(write)(handle, data, size);
    if (control->error == ENOSPC && size > 1 && state >> 30 & 1) return NEXT(write)(handle, data, size / 2);
    errno = control->error;
    return -1;
}
#define PWRITE(name, offset_t) ssize_t name(int handle, const void *data, size_t size, offset_t at) { \
    return fails_at(WRITE, handle) ? -1 : NEXT(name)(handle, data, size, at); }
PWRITE(pwrite, off_t) PWRITE(pwrite64, off64_t)
ssize_t writev(int handle, const struct iovec *data, int count) {
    return fails_at(WRITE, handle) ? -1 : NEXT(writev)(handle, data, count); }
#define SENDFILE(name, offset_t) ssize_t name(int to, int from, offset_t *at, size_t size) { \
    return fails_at(READ, from) || fails_at(WRITE, to) ? -1 : NEXT(name)(to, from, at, size); }
SENDFILE(sendfile, off_t) SENDFILE(sendfile64, off64_t)
/* It returns the error. */
#define ALLOCATE(name, offset_t) int name(int handle, offset_t at, offset_t size) { \
    return fails_at(WRITE, handle) ? errno : NEXT(name)(handle, at, size); }
ALLOCATE(posix_fallocate, off_t) ALLOCATE(posix_fallocate64, off64_t)
#define RESIZE(name, offset_t) int name(int handle, offset_t size) { \
    return fails_at(WRITE, handle) ? -1 : NEXT(name)(handle, size); }
RESIZE(ftruncate, off_t) RESIZE(ftruncate64, off64_t)
ssize_t copy_file_range(int from, off64_t *at, int to, off64_t *where, size_t size, unsigned flags) {
    return fails_at(READ, from) || fails_at(WRITE, to) ? -1 : NEXT(copy_file_range)(from, at, to, where, size, flags); }

int fsync(int handle) { return fails_at(FLUSH, handle) ? -1 : NEXT(fsync)(handle); }
int fdatasync(int handle) { return fails_at(FLUSH, handle) ? -1 : NEXT(fdatasync)(handle); }

int mkdir(const char *path, mode_t mode) { return fails_on(NAME, AT_FDCWD, path) ? -1 : NEXT(mkdir)(path, mode); }
int mkdirat(int parent, const char *path, mode_t mode) {
    return fails_on(NAME, parent, path) ? -1 : NEXT(mkdirat)(parent, path, mode); }
int rename(const char *old, const char *new) { return fails_on(NAME, AT_FDCWD, new) ? -1 : NEXT(rename)(old, new); }
int renameat(int from, const char *old, int to, const char *new) {
    return fails_on(NAME, to, new) ? -1 : NEXT(renameat)(from, old, to, new); }
int rmdir(const char *path) { return fails_on(NAME, AT_FDCWD, path) ? -1 : NEXT(rmdir)(path); }
int linkat(int from, const char *old, int to, const char *new, int flags) {
    return fails_on(NAME, to, new) ? -1 : NEXT(linkat)(from, old, to, new, flags); }
int link(const char *old, const char *new) { return fails_on(NAME, AT_FDCWD, new) ? -1 : NEXT(link)(old, new); }
int symlink(const char *old, const char *new) { return fails_on(NAME, AT_FDCWD, new) ? -1 : NEXT(symlink)(old, new); }
int unlink(const char *path) { return fails_on(NAME, AT_FDCWD, path) ? -1 : NEXT(unlink)(path); }
int unlinkat(int parent, const char *path, int flags) {
    return fails_on(NAME, parent, path) ? -1 : NEXT(unlinkat)(parent, path, flags); }
int utimensat(int parent, const char *path, const struct timespec times[2], int flags) {
    return fails_on(NAME, parent, path) ? -1 : NEXT(utimensat)(parent, path, times, flags); }
