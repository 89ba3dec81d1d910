/* Moves the wall clock of a server that it is loaded into before the C library: by as
 * many nanoseconds as the file says that SEMEL_CHAOS_CLOCK names. The monotonic clock
 * stays. Kernel calls only: an allocator may ask for the time before anything else is
 * ready. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset;

__attribute__((constructor)) static void init(void)
{
	const char *name = getenv("SEMEL_CHAOS_CLOCK");
	int fd = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0)
		return;
	void *p = mmap(0, sizeof *offset, PROT_READ, MAP_SHARED, fd, 0);
	if (p != MAP_FAILED)
		offset = p;
	close(fd);
}

int clock_gettime(clockid_t id, struct timespec *t)
{
	int result = syscall(SYS_clock_gettime, id, t);
	if (result == 0 && offset && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
		int64_t ns = t->tv_sec * 1000000000LL + t->tv_nsec + *offset;
		t->tv_sec = ns / 1000000000LL;
		t->tv_nsec = ns % 1000000000LL;
	}
	return result;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone)
{
	struct timespec t;
	(void)zone;
	if (clock_gettime(CLOCK_REALTIME, &t) != 0)
		return -1;
	tv->tv_sec = t.tv_sec;
	tv->tv_usec = t.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *out)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	if (out)
		*out = t.tv_sec;
	return t.tv_sec;
}
