/* A disk that can fail and can forget, put between a program and the kernel with LD_PRELOAD.
 *
 * For files below $TIDINGS_DISK_ROOT it notes in the log $TIDINGS_DISK_LOG, before each change, what was there,
 * and after each successful sync, up to where in the log that file is safe. A test kills the program and then
 * cuts the power by undoing what no sync covers. Syncs do not reach the real disk: the log says what is safe.
 * The file $TIDINGS_DISK_CONTROL, shared memory of 64-bit numbers, makes calls fail or wait.
 *
 * Not seen: raw system calls (the renames of the tempfile crate), mmap, dup'ed descriptors; the store uses none
 * of the latter two. Nothing is allocated after start, one lock, so any thread may call at any time. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { WRITE = 1, RESIZE = 2, SYNC = 3, CREATE = 4 };
/* Places in the control file; disk.rs has the same list. */
enum { SYNC_COUNTDOWN, SYNC_ERRNO, SYNC_FOREVER, WRITE_BUDGET, WRITE_ERRNO, WRITE_FOREVER, SYNC_DELAY_MS,
       CREATE_ERRNO, SYNCS, FAULTS, WRITTEN, CONTROLS };

struct record { uint32_t kind, payload; uint64_t inode, at, length, size_before; };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX];
static size_t root_len;
static int log_fd = -1;
static uint64_t log_end;
static volatile int64_t *control;
static unsigned char tracked[1 << 20];
static char old[1 << 16];

static int is_tracked(int fd) { return fd >= 0 && fd < (int)sizeof tracked && tracked[fd]; }

static void die(const char *what) {
    dprintf(2, "disk shim: cannot %s: %s\n", what, strerror(errno));
    _exit(99);
}

__attribute__((constructor)) static void start(void) {
    const char *dir = getenv("TIDINGS_DISK_ROOT"), *log = getenv("TIDINGS_DISK_LOG");
    const char *control_path = getenv("TIDINGS_DISK_CONTROL");
    if (!dir || !log || !control_path) return;
    strncpy(root, dir, sizeof root - 1);
    root_len = strlen(root);
    log_fd = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (log_fd < 0) die("open the log");
    struct stat st;
    if (fstat(log_fd, &st) == 0) log_end = st.st_size;
    int fd = syscall(SYS_openat, AT_FDCWD, control_path, O_RDWR | O_CLOEXEC, 0);
    if (fd < 0) die("open the control file");
    control = mmap(NULL, CONTROLS * 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (control == MAP_FAILED) die("map the control file");
    syscall(SYS_close, fd);
}

static void note(struct record r, const void *payload) {
    struct iovec parts[2] = { { &r, sizeof r }, { (void *)payload, r.payload } };
    ssize_t want = sizeof r + r.payload;
    if (syscall(SYS_writev, log_fd, parts, 2) != want) die("write the log");
    log_end += want;
}

static void fault(int64_t error) {
    __atomic_add_fetch(&control[FAULTS], 1, __ATOMIC_SEQ_CST);
    errno = (int)error;
}

/* ---- opening and closing ---- */

static int below_root(const char *path) {
    return control && strncmp(path, root, root_len) == 0 && (path[root_len] == '/' || path[root_len] == 0);
}

static uint64_t inode_of(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 ? st.st_ino : 0;
}

static void created(const char *path) {
    char parent[PATH_MAX];
    strncpy(parent, path, sizeof parent - 1);
    parent[sizeof parent - 1] = 0;
    char *slash = strrchr(parent, '/');
    if (slash) *slash = 0;
    struct record r = { CREATE, strlen(path), inode_of(path), inode_of(parent), 0, 0 };
    pthread_mutex_lock(&lock);
    note(r, path);
    pthread_mutex_unlock(&lock);
}

static int open_any(int dir, const char *path, int flags, mode_t mode) {
    int ours = below_root(path), is_new = 0;
    if (ours && (flags & O_ACCMODE) != O_RDONLY) {
        if (control[CREATE_ERRNO]) { fault(control[CREATE_ERRNO]); return -1; }
        is_new = (flags & O_CREAT) && syscall(SYS_faccessat, dir, path, F_OK) != 0;
    }
    int fd = syscall(SYS_openat, dir, path, flags, mode);
    if (fd >= 0 && fd < (int)sizeof tracked) tracked[fd] = ours;
    if (fd >= 0 && is_new) created(path);
    return fd;
}

#define OPEN_MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); }

int open(const char *path, int flags, ...) { OPEN_MODE(flags) return open_any(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { OPEN_MODE(flags) return open_any(AT_FDCWD, path, flags, mode); }
int openat(int dir, const char *path, int flags, ...) { OPEN_MODE(flags) return open_any(dir, path, flags, mode); }
int openat64(int dir, const char *path, int flags, ...) { OPEN_MODE(flags) return open_any(dir, path, flags, mode); }
int creat(const char *path, mode_t mode) { return open_any(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

int close(int fd) {
    if (is_tracked(fd)) tracked[fd] = 0;
    return syscall(SYS_close, fd);
}

int mkdir(const char *path, mode_t mode) {
    if (below_root(path) && control[CREATE_ERRNO]) { fault(control[CREATE_ERRNO]); return -1; }
    int answer = syscall(SYS_mkdirat, AT_FDCWD, path, mode);
    if (answer == 0 && below_root(path)) created(path);
    return answer;
}

/* ---- changing ---- */

/* Notes what a write is about to replace, in pieces that fit the buffer. */
static void note_write(int fd, uint64_t at, size_t length) {
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) return;
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int reader = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (reader < 0) die("read what a write replaces");
    for (size_t done = 0; done < length;) {
        size_t piece = length - done < sizeof old ? length - done : sizeof old;
        ssize_t had = pread(reader, old, piece, at + done);
        if (had < 0) had = 0;
        struct record r = { WRITE, had, st.st_ino, at + done, piece, st.st_size };
        note(r, old);
        done += piece;
    }
    syscall(SYS_close, reader);
}

/* How much of a write the budget lets through; 0 with errno set when it fails. */
static size_t allowed(size_t length) {
    int64_t budget = control[WRITE_BUDGET];
    if (budget < 0 || length == 0) return length;
    if (budget == 0) {
        fault(control[WRITE_ERRNO]);
        if (!control[WRITE_FOREVER]) control[WRITE_BUDGET] = -1;
        return 0;
    }
    size_t part = (uint64_t)budget < length ? (size_t)budget : length;
    control[WRITE_BUDGET] = budget - part;
    return part;
}

static ssize_t write_at(int fd, const void *bytes, size_t length, off_t at, int positioned) {
    pthread_mutex_lock(&lock);
    ssize_t answer = -1;
    size_t part = allowed(length);
    if (part > 0 || length == 0) {
        if (!positioned) {
            struct stat st;
            int append = fcntl(fd, F_GETFL) & O_APPEND;
            at = append && fstat(fd, &st) == 0 ? st.st_size : lseek(fd, 0, SEEK_CUR);
        }
        note_write(fd, at, part);
        answer = positioned ? syscall(SYS_pwrite64, fd, bytes, part, at) : syscall(SYS_write, fd, bytes, part);
        if (answer > 0) control[WRITTEN] += answer;
    }
    int error = errno;
    pthread_mutex_unlock(&lock);
    errno = error;
    return answer;
}

ssize_t write(int fd, const void *bytes, size_t length) {
    return is_tracked(fd) ? write_at(fd, bytes, length, 0, 0) : syscall(SYS_write, fd, bytes, length);
}
ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t at) {
    return is_tracked(fd) ? write_at(fd, bytes, length, at, 1) : syscall(SYS_pwrite64, fd, bytes, length, at);
}
ssize_t pwrite(int fd, const void *bytes, size_t length, off_t at) { return pwrite64(fd, bytes, length, at); }

/* The first part alone is a short write, which every caller has to expect. */
ssize_t writev(int fd, const struct iovec *parts, int count) {
    if (!is_tracked(fd)) return syscall(SYS_writev, fd, parts, count);
    for (int i = 0; i < count; i++)
        if (parts[i].iov_len) return write_at(fd, parts[i].iov_base, parts[i].iov_len, 0, 0);
    return 0;
}
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at) {
    if (!is_tracked(fd)) return syscall(SYS_pwritev, fd, parts, count, at, 0);
    for (int i = 0; i < count; i++)
        if (parts[i].iov_len) return write_at(fd, parts[i].iov_base, parts[i].iov_len, at, 1);
    return 0;
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) { return pwritev64(fd, parts, count, at); }

int ftruncate64(int fd, off64_t size) {
    if (!is_tracked(fd)) return syscall(SYS_ftruncate, fd, size);
    pthread_mutex_lock(&lock);
    struct stat st;
    int answer = -1;
    if (control[WRITE_BUDGET] == 0) {
        allowed(1);
    } else {
        if (fstat(fd, &st) == 0) note((struct record){ RESIZE, 0, st.st_ino, size, 0, st.st_size }, "");
        answer = syscall(SYS_ftruncate, fd, size);
    }
    int error = errno;
    pthread_mutex_unlock(&lock);
    errno = error;
    return answer;
}
int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

/* ---- syncing ---- */

static int sync_any(int fd, long call) {
    if (!is_tracked(fd)) return syscall(call, fd);
    pthread_mutex_lock(&lock);
    uint64_t covered = log_end;
    pthread_mutex_unlock(&lock);
    __atomic_add_fetch(&control[SYNCS], 1, __ATOMIC_SEQ_CST);
    if (control[SYNC_DELAY_MS] > 0) {
        int64_t ms = control[SYNC_DELAY_MS];
        struct timespec wait = { ms / 1000, ms % 1000 * 1000000 };
        nanosleep(&wait, NULL);
    }
    if (control[SYNC_COUNTDOWN] >= 0) {
        int64_t left = __atomic_fetch_sub(&control[SYNC_COUNTDOWN], 1, __ATOMIC_SEQ_CST);
        if (left == 0 || (left < 0 && control[SYNC_FOREVER])) {
            if (control[SYNC_FOREVER]) control[SYNC_COUNTDOWN] = 0;
            fault(control[SYNC_ERRNO]);
            return -1;
        }
    }
    struct stat st;
    if (fstat(fd, &st) != 0) return -1;
    pthread_mutex_lock(&lock);
    note((struct record){ SYNC, 0, st.st_ino, covered, 0, 0 }, "");
    pthread_mutex_unlock(&lock);
    return 0;
}

int fsync(int fd) { return sync_any(fd, SYS_fsync); }
int fdatasync(int fd) { return sync_any(fd, SYS_fdatasync); }
