/* What a device must do for the host; every call returns 0 when it worked. */
#ifndef FUSEPLAN_DEVICE_H
#define FUSEPLAN_DEVICE_H

#include "fuseplan.h"

void fp_fail(const char *where, const char *what, long code);

int dev_open(void);
void dev_close(void);
int dev_allocate(size_t bytes, void **memory);
int dev_slice(void *whole, size_t offset, size_t bytes, void **memory);
void dev_free(void *memory, int is_slice);
int dev_write(void *memory, const void *from, size_t bytes);
int dev_read(void *memory, void *to, size_t bytes);
int dev_load(const char *path, const char *entry, const char *options, void **kernel);
int dev_launch(void *kernel, const fp_step *step, void *const *memories);
void dev_unload(void *kernel);

#endif
