// One library for old and new C libraries: symbols that glibc has moved or added of late are taken in their old form.
// To be included by one source file.
#pragma once

#include <dlfcn.h>
#include <features.h>

#if defined(__GLIBC__)
#if __GLIBC_PREREQ(2, 34)
// Since 2.34 these are part of libc itself under a new version; the old version of them is there as well.
#if defined(__x86_64__)
__asm__(".symver dlopen, dlopen@GLIBC_2.2.5");
__asm__(".symver dlsym, dlsym@GLIBC_2.2.5");
#elif defined(__aarch64__)
__asm__(".symver dlopen, dlopen@GLIBC_2.17");
__asm__(".symver dlsym, dlsym@GLIBC_2.17");
#endif
#endif
#if __GLIBC_PREREQ(2, 32)
// The C++ library asks here whether it may leave out atomic operations. Beside TensorFlow's threads it may never.
extern "C" {
extern __attribute__((visibility("hidden"))) char __libc_single_threaded;
char __libc_single_threaded = 0;
}
#endif
#endif
