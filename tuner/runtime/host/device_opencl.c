/* OpenCL 3.0 devices. */
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>

#include "device.h"

#define MOST_PLATFORMS 16

static cl_device_id device;
static cl_context context;
static cl_command_queue queue;

static int check(const char *where, cl_int code) {
    if (code != CL_SUCCESS) fp_fail(where, "OpenCL refused", code);
    return code != CL_SUCCESS;
}

int dev_open(void) {
    cl_platform_id platforms[MOST_PLATFORMS];
    cl_uint count = 0;
    cl_int code = clGetPlatformIDs(MOST_PLATFORMS, platforms, &count);
    if (count > MOST_PLATFORMS) count = MOST_PLATFORMS;
    for (cl_uint i = 0; code == CL_SUCCESS && i < count && !device; i++)
        clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, 1, &device, NULL);
    if (!device) {
        fp_fail("OpenCL", "no device was found", code);
        return 1;
    }
    context = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
    if (check("context", code)) return 1;
    queue = clCreateCommandQueueWithProperties(context, device, NULL, &code);
    return check("queue", code);
}

void dev_close(void) {
    if (queue) clReleaseCommandQueue(queue);
    if (context) clReleaseContext(context);
    queue = NULL;
    context = NULL;
    device = NULL;
}

int dev_allocate(size_t bytes, void **memory) {
    cl_int code;
    *memory = clCreateBuffer(context, CL_MEM_READ_WRITE, bytes, NULL, &code);
    return check("buffer", code);
}

int dev_slice(void *whole, size_t offset, size_t bytes, void **memory) {
    cl_buffer_region region = {offset, bytes};
    cl_int code;
    *memory = clCreateSubBuffer(whole, CL_MEM_READ_WRITE,
                                CL_BUFFER_CREATE_TYPE_REGION, &region, &code);
    return check("part of the arena", code);
}

void dev_free(void *memory, int is_slice) {
    (void)is_slice;
    clReleaseMemObject(memory);
}

int dev_write(void *memory, const void *from, size_t bytes) {
    return check("write", clEnqueueWriteBuffer(queue, memory, CL_TRUE, 0, bytes, from,
                                               0, NULL, NULL));
}

int dev_read(void *memory, void *to, size_t bytes) {
    return check("read", clEnqueueReadBuffer(queue, memory, CL_TRUE, 0, bytes, to, 0,
                                             NULL, NULL));
}

static char *text_of(const char *path) {
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    long size = 0;
    if (file && !fseek(file, 0, SEEK_END) && (size = ftell(file)) >= 0 &&
        !fseek(file, 0, SEEK_SET) && (text = calloc((size_t)size + 1, 1)) &&
        fread(text, 1, (size_t)size, file) != (size_t)size) {
        free(text);
        text = NULL;
    }
    if (file) fclose(file);
    return text;
}

static void show_log(cl_program program) {
    char log[4096] = "";
    clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, sizeof log - 1, log,
                          NULL);
    fprintf(stderr, "%s\n", log);
}

int dev_load(const char *path, const char *entry, const char *options, void **kernel) {
    cl_int code;
    char *text = text_of(path);
    const char *texts[] = {text};
    if (!text) {
        fp_fail(path, "cannot be read", 0);
        return 1;
    }
    cl_program program = clCreateProgramWithSource(context, 1, texts, NULL, &code);
    free(text);
    if (check(path, code)) return 1;
    code = clBuildProgram(program, 1, &device, options, NULL, NULL);
    if (code == CL_SUCCESS) *kernel = clCreateKernel(program, entry, &code);
    else show_log(program);
    clReleaseProgram(program);
    return check(path, code);
}

int dev_launch(void *kernel, const fp_step *step, void *const *memories) {
    size_t work[3];
    for (int i = 0; i < step->count; i++) {
        cl_mem memory = memories[i];
        cl_int code = clSetKernelArg(kernel, (cl_uint)i, sizeof memory, &memory);
        if (check(step->name, code)) return 1;
    }
    for (int i = 0; i < 3; i++) work[i] = step->grid[i] * step->block[i];
    return check(step->name, clEnqueueNDRangeKernel(queue, kernel, 3, NULL, work,
                                                    step->block, 0, NULL, NULL));
}

void dev_unload(void *kernel) { clReleaseKernel(kernel); }
