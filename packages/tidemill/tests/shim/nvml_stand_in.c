/* Answers like NVML for a machine with two GPUs, the second of which fails after it was read once. */

#include <string.h>

static int opened, reads;

typedef struct { unsigned gpu, memory; } utilization;
typedef struct { unsigned long long total, free, used; } memory;

int nvmlInit_v2(void) { opened++; return 0; }
int nvmlShutdown(void) { opened--; return 0; }
int stand_in_opened(void) { return opened; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    if (!opened) return 1;
    if (index > 1) return 6;
    *device = (void *)(unsigned long)(index + 1);
    return 0;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    if (strncmp(uuid, "GPU-", 4) != 0 && strncmp(uuid, "MIG-", 4) != 0) return 6;
    *device = (void *)(unsigned long)(uuid[0] == 'M' ? 3 : uuid[4] - '0' + 1);
    return 0;
}

int nvmlDeviceGetName(void *device, char *name, unsigned length) {
    strncpy(name, device == (void *)3 ? "Part" : "Stand-in 9000", length);
    return 0;
}

int nvmlDeviceGetUtilizationRates(void *device, utilization *used) {
    if (device == (void *)3) return 3; /* not supported for a part of a GPU */
    used->gpu = 40 + reads;
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, memory *info) {
    info->total = 16ULL << 30;
    info->used = (unsigned long long)device << 30;
    if (device == (void *)2 && ++reads > 2) return 15; /* the GPU is lost */
    return 0;
}
