// Threads and addresses for old and new C libraries: what old_glibc.h does for loading, for a library with threads.
// To be included by one source file. The thread functions are called by the C++ library that is linked in, so they are
// defined here, hidden, and call the C library's in their old form.
#pragma once

#include <dlfcn.h>
#include <pthread.h>
#include <time.h>

#include <cerrno>

#if defined(__has_feature)
#define TIDEMILL_HAS_FEATURE(name) __has_feature(name)
#else
#define TIDEMILL_HAS_FEATURE(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || TIDEMILL_HAS_FEATURE(address_sanitizer) || \
    TIDEMILL_HAS_FEATURE(thread_sanitizer)
#define TIDEMILL_SANITIZED 1  // sanitizers define these functions themselves
#endif

#if defined(__x86_64__)
#define TIDEMILL_OLDEST "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define TIDEMILL_OLDEST "GLIBC_2.17"
#endif

#if defined(__GLIBC__) && defined(TIDEMILL_OLDEST) && !defined(TIDEMILL_SANITIZED)
extern "C" {
#if __GLIBC_PREREQ(2, 34)
// Since 2.34 these are part of libc itself under a new version; the old version of them is there as well.
__asm__(".symver dladdr, dladdr@" TIDEMILL_OLDEST);
__asm__(".symver tidemill_old_pthread_create, pthread_create@" TIDEMILL_OLDEST);
__asm__(".symver tidemill_old_pthread_detach, pthread_detach@" TIDEMILL_OLDEST);
__asm__(".symver tidemill_old_pthread_join, pthread_join@" TIDEMILL_OLDEST);
int tidemill_old_pthread_create(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
int tidemill_old_pthread_detach(pthread_t);
int tidemill_old_pthread_join(pthread_t, void**);

__attribute__((visibility("hidden"))) int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                                                         void* (*run)(void*), void* argument) noexcept {
  return tidemill_old_pthread_create(thread, attributes, run, argument);
}

__attribute__((visibility("hidden"))) int pthread_detach(pthread_t thread) noexcept {
  return tidemill_old_pthread_detach(thread);
}

__attribute__((visibility("hidden"))) int pthread_join(pthread_t thread, void** result) {
  return tidemill_old_pthread_join(thread, result);
}
#endif
#if __GLIBC_PREREQ(2, 30)
// New in 2.30. The C++ library waits with it until a time of the monotonic clock, and looks at that clock again when
// the wait ends, so that a step of the real-time clock makes the wait longer or costs a turn, and nothing else.
__attribute__((visibility("hidden"))) int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                                                                 clockid_t clock, const struct timespec* deadline) {
  struct timespec now, until;
  if (::clock_gettime(clock, &now) != 0 || ::clock_gettime(CLOCK_REALTIME, &until) != 0) return EINVAL;
  constexpr long kSecond = 1000000000;
  long nanoseconds = until.tv_nsec + deadline->tv_nsec - now.tv_nsec;
  until.tv_sec += deadline->tv_sec - now.tv_sec;
  while (nanoseconds < 0) nanoseconds += kSecond, --until.tv_sec;
  while (nanoseconds >= kSecond) nanoseconds -= kSecond, ++until.tv_sec;
  if (until.tv_sec < 0) return ETIMEDOUT;
  until.tv_nsec = nanoseconds;
  return ::pthread_cond_timedwait(condition, mutex, &until);
}
#endif
}
#endif
