/* Records in which order a process writes, syncs, names and acknowledges. Preloaded by tests; see durability.py.
 *
 * One line is appended to DURABILITY_LOG for each event: thread, event, inode, path, tab-separated. Only files below
 * DURABILITY_ROOT are recorded. Writes and the beginning of a sync are recorded before the call, everything else after
 * it has succeeded, so that the record never promises more than the kernel has.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static void record(char event, unsigned long inode, const char *path, size_t size)
{
    const char *log = getenv("DURABILITY_LOG");
    if (!log)
        return;
    char line[PATH_MAX + 64];
    int head = snprintf(line, sizeof line, "%ld\t%c\t%lu\t", (long)syscall(SYS_gettid), event, inode);
    if (size > PATH_MAX)
        size = PATH_MAX;
    for (size_t i = 0; i < size; i++)
        line[head + i] = (path[i] == '\n' || path[i] == '\r') ? ' ' : path[i];
    line[head + size] = '\n';
    /* Opened anew each time: the program may close descriptors that it does not know. */
    long fd = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0) {
        syscall(SYS_write, fd, line, head + size + 1);
        syscall(SYS_close, fd);
    }
}

static int is_below_root(const char *path)
{
    const char *root = getenv("DURABILITY_ROOT");
    return root && strncmp(path, root, strlen(root)) == 0;
}

static int path_of(int fd, char *path)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, PATH_MAX - 1);
    if (size < 0)
        return 0;
    path[size] = 0;
    return is_below_root(path);
}

static void of_fd(char event, int fd)
{
    char path[PATH_MAX];
    struct stat status;
    if (fstat(fd, &status) == 0 && (S_ISREG(status.st_mode) || S_ISDIR(status.st_mode)) && path_of(fd, path))
        record(event, status.st_ino, path, strlen(path));
}

static void of_name(char event, int directory, const char *name)
{
    char path[PATH_MAX * 2], base[PATH_MAX] = "";
    if (name[0] == '/') {
        snprintf(path, sizeof path, "%s", name);
    } else {
        if (directory == AT_FDCWD ? !getcwd(base, sizeof base) : !path_of(directory, base))
            return;
        snprintf(path, sizeof path, "%s/%s", base, name);
    }
    struct stat status = {0};
    if (!is_below_root(path) || (event != 'U' && lstat(path, &status) != 0))
        return;
    record(event, status.st_ino, path, strlen(path));
}

/* A write to a file, or an acknowledgment: a successful answer, or a line of a test's program. */
static void writing(int fd, const void *data, size_t size)
{
    struct stat status;
    if (fstat(fd, &status) != 0)
        return;
    if (S_ISREG(status.st_mode))
        of_fd('W', fd);
    else if (size > 10 && (memcmp(data, "HTTP/1.1 2", 10) == 0 || memcmp(data, "ACKNOWLEDGE", 11) == 0))
        record('A', 0, data, size < 100 ? size : 100);
}

static void writing_parts(int fd, const struct iovec *parts, int count)
{
    if (count > 0)
        writing(fd, parts[0].iov_base, parts[0].iov_len);
}

ssize_t write(int fd, const void *data, size_t size) { writing(fd, data, size); return REAL(write)(fd, data, size); }
ssize_t writev(int fd, const struct iovec *parts, int count) { writing_parts(fd, parts, count); return REAL(writev)(fd, parts, count); }
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { writing(fd, data, size); return REAL(pwrite)(fd, data, size, at); }
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) { writing(fd, data, size); return REAL(pwrite64)(fd, data, size, at); }
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) { writing_parts(fd, parts, count); return REAL(pwritev)(fd, parts, count, at); }
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at) { writing_parts(fd, parts, count); return REAL(pwritev64)(fd, parts, count, at); }
ssize_t send(int fd, const void *data, size_t size, int flags) { writing(fd, data, size); return REAL(send)(fd, data, size, flags); }
ssize_t sendmsg(int fd, const struct msghdr *message, int flags) { writing_parts(fd, message->msg_iov, (int)message->msg_iovlen); return REAL(sendmsg)(fd, message, flags); }
int ftruncate(int fd, off_t size) { of_fd('W', fd); return REAL(ftruncate)(fd, size); }
int ftruncate64(int fd, off64_t size) { of_fd('W', fd); return REAL(ftruncate64)(fd, size); }
ssize_t sendfile(int to, int from, off_t *at, size_t size) { of_fd('W', to); return ((ssize_t (*)(int, int, off_t *, size_t))dlsym(RTLD_NEXT, "sendfile"))(to, from, at, size); }
ssize_t sendfile64(int to, int from, off64_t *at, size_t size) { of_fd('W', to); return ((ssize_t (*)(int, int, off64_t *, size_t))dlsym(RTLD_NEXT, "sendfile64"))(to, from, at, size); }
ssize_t copy_file_range(int from, off64_t *at, int to, off64_t *target, size_t size, unsigned flags) { of_fd('W', to); return REAL(copy_file_range)(from, at, to, target, size, flags); }

int ioctl(int fd, unsigned long request, ...)
{
    va_list rest;
    va_start(rest, request);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    if (request == FICLONE)
        of_fd('W', fd);
    return ((int (*)(int, unsigned long, ...))dlsym(RTLD_NEXT, "ioctl"))(fd, request, argument);
}

int fsync(int fd)
{
    of_fd('f', fd);
    int result = REAL(fsync)(fd);
    if (result == 0)
        of_fd('F', fd);
    return result;
}

int fdatasync(int fd)
{
    of_fd('f', fd);
    int result = REAL(fdatasync)(fd);
    if (result == 0)
        of_fd('F', fd);
    return result;
}

static int opened(const char *symbol, int directory, const char *path, int flags, mode_t mode, int is_at)
{
    struct stat status;
    int is_new = (flags & O_CREAT) && fstatat(directory, path, &status, AT_SYMLINK_NOFOLLOW) != 0;
    void *real = dlsym(RTLD_NEXT, symbol);
    int fd = is_at ? ((int (*)(int, const char *, int, ...))real)(directory, path, flags, mode)
                   : ((int (*)(const char *, int, ...))real)(path, flags, mode);
    if (fd >= 0 && is_new)
        of_fd('N', fd);
    if (fd >= 0 && !is_new && (flags & O_TRUNC))
        of_fd('W', fd);
    return fd;
}

#define MODE(last) ({ mode_t mode = 0; if (flags & (O_CREAT | O_TMPFILE)) { va_list rest; va_start(rest, last); mode = va_arg(rest, mode_t); va_end(rest); } mode; })

int open(const char *path, int flags, ...) { return opened("open", AT_FDCWD, path, flags, MODE(flags), 0); }
int open64(const char *path, int flags, ...) { return opened("open64", AT_FDCWD, path, flags, MODE(flags), 0); }
int openat(int directory, const char *path, int flags, ...) { return opened("openat", directory, path, flags, MODE(flags), 1); }
int openat64(int directory, const char *path, int flags, ...) { return opened("openat64", directory, path, flags, MODE(flags), 1); }

static int named(int result, int directory, const char *path)
{
    if (result == 0)
        of_name('N', directory, path);
    return result;
}

static int moved(int result, int from_directory, const char *from, int directory, const char *path)
{
    if (result == 0) {
        of_name('U', from_directory, from);
        of_name('N', directory, path);
    }
    return result;
}

static int removed(int result, int directory, const char *path)
{
    if (result == 0)
        of_name('U', directory, path);
    return result;
}

int rename(const char *from, const char *to) { return moved(REAL(rename)(from, to), AT_FDCWD, from, AT_FDCWD, to); }
int renameat(int a, const char *from, int b, const char *to) { return moved(REAL(renameat)(a, from, b, to), a, from, b, to); }
int renameat2(int a, const char *from, int b, const char *to, unsigned flags) { return moved(REAL(renameat2)(a, from, b, to, flags), a, from, b, to); }
int link(const char *from, const char *to) { return named(REAL(link)(from, to), AT_FDCWD, to); }
int linkat(int a, const char *from, int b, const char *to, int flags) { return named(REAL(linkat)(a, from, b, to, flags), b, to); }
int mkdir(const char *path, mode_t mode) { return named(REAL(mkdir)(path, mode), AT_FDCWD, path); }
int mkdirat(int directory, const char *path, mode_t mode) { return named(REAL(mkdirat)(directory, path, mode), directory, path); }
int unlink(const char *path) { return removed(REAL(unlink)(path), AT_FDCWD, path); }
int unlinkat(int directory, const char *path, int flags) { return removed(REAL(unlinkat)(directory, path, flags), directory, path); }
int rmdir(const char *path) { return removed(REAL(rmdir)(path), AT_FDCWD, path); }
