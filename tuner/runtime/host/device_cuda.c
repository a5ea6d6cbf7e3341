/* CUDA devices, through the driver's interface; kernels are cubin files. */
#include <cuda.h>
#include <stdint.h>
#include <stdlib.h>

#include "device.h"

typedef struct {
    CUmodule module;
    CUfunction function;
} kernel_of;

#define STATIC_SHARED_BYTES 49152

static CUdevice device;
static CUcontext context;
static CUstream stream;

static int check(const char *where, CUresult code) {
    const char *text = "CUDA refused";
    if (code == CUDA_SUCCESS) return 0;
    cuGetErrorString(code, &text);
    fp_fail(where, text, (long)code);
    return 1;
}

static CUdeviceptr pointer_of(const void *memory) {
    return (CUdeviceptr)(uintptr_t)memory;
}

int dev_open(void) {
    return check("driver", cuInit(0)) || check("device", cuDeviceGet(&device, 0)) ||
           check("context", cuDevicePrimaryCtxRetain(&context, device)) ||
           check("context", cuCtxSetCurrent(context)) ||
           check("stream", cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

void dev_close(void) {
    if (stream) cuStreamDestroy(stream);
    if (context) cuDevicePrimaryCtxRelease(device);
    stream = NULL;
    context = NULL;
}

int dev_allocate(size_t bytes, void **memory) {
    CUdeviceptr pointer = 0;
    int failed = check("buffer", cuMemAlloc(&pointer, bytes));
    *memory = (void *)(uintptr_t)pointer;
    return failed;
}

int dev_slice(void *whole, size_t offset, size_t bytes, void **memory) {
    (void)bytes;
    *memory = (char *)whole + offset;
    return 0;
}

void dev_free(void *memory, int is_slice) {
    if (!is_slice) cuMemFree(pointer_of(memory));
}

int dev_write(void *memory, const void *from, size_t bytes) {
    return check("write", cuMemcpyHtoDAsync(pointer_of(memory), from, bytes, stream)) ||
           check("write", cuStreamSynchronize(stream));
}

int dev_read(void *memory, void *to, size_t bytes) {
    return check("read", cuMemcpyDtoHAsync(to, pointer_of(memory), bytes, stream)) ||
           check("read", cuStreamSynchronize(stream));
}

int dev_load(const char *path, const char *entry, const char *options, void **kernel) {
    kernel_of *made = calloc(1, sizeof *made);
    (void)options;
    if (!made) return 1;
    *kernel = made;
    return check(path, cuModuleLoad(&made->module, path)) ||
           check(path, cuModuleGetFunction(&made->function, made->module, entry));
}

int dev_launch(void *kernel, const fp_step *step, void *const *memories) {
    CUfunction function = ((kernel_of *)kernel)->function;
    CUdeviceptr *pointers = calloc((size_t)step->count + 1, sizeof *pointers);
    void **arguments = calloc((size_t)step->count + 1, sizeof *arguments);
    int failed = !pointers || !arguments;
    for (int i = 0; i < step->count && !failed; i++) {
        pointers[i] = pointer_of(memories[i]);
        arguments[i] = &pointers[i];
    }
    if (!failed && step->shared_bytes > STATIC_SHARED_BYTES)
        failed = check(step->name,
                       cuFuncSetAttribute(
                           function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                           (int)step->shared_bytes));
    if (!failed)
        failed = check(
            step->name,
            cuLaunchKernel(function, (unsigned)step->grid[0], (unsigned)step->grid[1],
                           (unsigned)step->grid[2], (unsigned)step->block[0],
                           (unsigned)step->block[1], (unsigned)step->block[2],
                           (unsigned)step->shared_bytes, stream, arguments, NULL));
    free(arguments);
    free(pointers);
    return failed;
}

void dev_unload(void *kernel) {
    kernel_of *made = kernel;
    if (made->module) cuModuleUnload(made->module);
    free(made);
}
