/* Runs a plan: buffers, kernels and launches by the tables of plan.c. */
#include "fuseplan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"

struct fp_run {
    void *arena;
    void **memories;
    void **kernels;
    fp_library library;
    void *user;
};

static char message[512];

const char *fp_error(void) { return message; }

void fp_fail(const char *where, const char *what, long code) {
    if (code)
        snprintf(message, sizeof message, "%s: %s (code %ld)", where, what, code);
    else
        snprintf(message, sizeof message, "%s: %s", where, what);
}

static void path_of(char *path, size_t size, const char *folder, const char *file) {
    snprintf(path, size, "%s/%s", folder, file);
}

static int load_constants(fp_run *run, const char *folder) {
    const fp_plan *plan = &fp_the_plan;
    char path[4096];
    FILE *file = NULL;
    int failed = 0;
    path_of(path, sizeof path, folder, "data.bin");
    for (int i = 0; i < plan->buffer_count && !failed; i++) {
        const fp_buffer *buffer = &plan->buffers[i];
        if (buffer->kind != FP_CONSTANT || !buffer->bytes) continue;
        if (!file) file = fopen(path, "rb");
        void *bytes = malloc(buffer->bytes);
        if (!file || !bytes || fseek(file, (long)buffer->offset, SEEK_SET) ||
            fread(bytes, 1, buffer->bytes, file) != buffer->bytes) {
            fp_fail(path, "cannot be read", 0);
            failed = 1;
        } else {
            failed = fp_write(run, i, bytes);
        }
        free(bytes);
    }
    if (file) fclose(file);
    return failed;
}

static int place(fp_run *run) {
    const fp_plan *plan = &fp_the_plan;
    if (plan->arena_bytes && dev_allocate(plan->arena_bytes, &run->arena)) return 1;
    for (int i = 0; i < plan->buffer_count; i++) {
        const fp_buffer *buffer = &plan->buffers[i];
        size_t bytes = buffer->bytes ? buffer->bytes : 1;
        int failed =
            buffer->kind == FP_ARENA
                ? dev_slice(run->arena, buffer->offset, bytes, &run->memories[i])
                : dev_allocate(bytes, &run->memories[i]);
        if (failed) return 1;
    }
    return 0;
}

static int is_empty(const fp_step *step) {
    return !step->grid[0] || !step->grid[1] || !step->grid[2];
}

static int load_kernels(fp_run *run, const char *folder) {
    const fp_plan *plan = &fp_the_plan;
    char path[4096];
    for (int i = 0; i < plan->step_count; i++) {
        const fp_step *step = &plan->steps[i];
        if (!step->file) {
            if (run->library) continue;
            fp_fail(step->name, "is a library call, and no library was given", 0);
            return 1;
        }
        if (is_empty(step)) continue;
        path_of(path, sizeof path, folder, step->file);
        if (dev_load(path, step->entry, plan->build_options, &run->kernels[i]))
            return 1;
    }
    return 0;
}

fp_run *fp_open(const char *folder, fp_library library, void *user) {
    const fp_plan *plan = &fp_the_plan;
    fp_run *run = calloc(1, sizeof *run);
    if (!run) return NULL;
    run->library = library;
    run->user = user;
    run->memories = calloc((size_t)plan->buffer_count + 1, sizeof(void *));
    run->kernels = calloc((size_t)plan->step_count + 1, sizeof(void *));
    if (!run->memories || !run->kernels || dev_open() || place(run) ||
        load_kernels(run, folder) || load_constants(run, folder)) {
        fp_close(run);
        return NULL;
    }
    return run;
}

int fp_write(fp_run *run, int buffer, const void *from) {
    size_t bytes = fp_the_plan.buffers[buffer].bytes;
    return bytes ? dev_write(run->memories[buffer], from, bytes) : 0;
}

int fp_read(fp_run *run, int buffer, void *to) {
    size_t bytes = fp_the_plan.buffers[buffer].bytes;
    return bytes ? dev_read(run->memories[buffer], to, bytes) : 0;
}

static int launch(fp_run *run, int number, void **memories) {
    const fp_step *step = &fp_the_plan.steps[number];
    if (!step->file) return run->library(run->user, run, step);
    if (is_empty(step)) return 0;
    for (int i = 0; i < step->count; i++)
        memories[i] = run->memories[step->arguments[i]];
    return dev_launch(run->kernels[number], step, memories);
}

int fp_launch(fp_run *run) {
    const fp_plan *plan = &fp_the_plan;
    int failed = 0;
    void **memories = calloc((size_t)plan->buffer_count + 1, sizeof(void *));
    if (!memories) return 1;
    for (int i = 0; i < plan->step_count && !failed; i++)
        failed = launch(run, i, memories);
    free(memories);
    return failed;
}

void fp_close(fp_run *run) {
    const fp_plan *plan = &fp_the_plan;
    if (!run) return;
    for (int i = 0; run->kernels && i < plan->step_count; i++)
        if (run->kernels[i]) dev_unload(run->kernels[i]);
    for (int i = 0; run->memories && i < plan->buffer_count; i++)
        if (run->memories[i])
            dev_free(run->memories[i], plan->buffers[i].kind == FP_ARENA);
    if (run->arena) dev_free(run->arena, 0);
    dev_close();
    free(run->kernels);
    free(run->memories);
    free(run);
}
