/* Runs a plan once: run_plan PLAN_FOLDER INPUT_FOLDER OUTPUT_FOLDER
 *
 * Inputs and weights are raw bytes in INPUT_FOLDER/TENSOR.bin, row by row in the order
 * of the machine; outputs are written likewise. manifest.json says which tensor has
 * which name, type and shape. Exit codes: 0 done, 1 failed, 2 usage, 3 the plan has
 * library calls, which only a host with a library can make.
 */
#include <stdio.h>
#include <stdlib.h>

#include "fuseplan.h"

static int feed(fp_run *run, int number, const char *folder) {
    const fp_buffer *buffer = &fp_the_plan.buffers[number];
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.bin", folder, buffer->tensor);
    FILE *file = fopen(path, "rb");
    void *bytes = malloc(buffer->bytes + 1);
    int failed = !file || !bytes;
    failed = failed || fread(bytes, 1, buffer->bytes + 1, file) != buffer->bytes;
    if (failed)
        fprintf(stderr, "%s: must be there with %zu bytes\n", path, buffer->bytes);
    else
        failed = fp_write(run, number, bytes);
    if (file) fclose(file);
    free(bytes);
    return failed;
}

static int deliver(fp_run *run, int number, const char *folder) {
    const fp_buffer *buffer = &fp_the_plan.buffers[number];
    char path[4096];
    void *bytes = malloc(buffer->bytes + 1);
    int failed = !bytes || fp_read(run, number, bytes);
    snprintf(path, sizeof path, "%s/%s.bin", folder, buffer->tensor);
    FILE *file = failed ? NULL : fopen(path, "wb");
    if (!failed && (!file || fwrite(bytes, 1, buffer->bytes, file) != buffer->bytes)) {
        fprintf(stderr, "%s: cannot be written\n", path);
        failed = 1;
    }
    if (file && fclose(file)) failed = 1;
    free(bytes);
    return failed;
}

static int has_library_calls(void) {
    int count = 0;
    for (int i = 0; i < fp_the_plan.step_count; i++) {
        const fp_step *step = &fp_the_plan.steps[i];
        if (step->file) continue;
        fprintf(stderr, "%s: a library call, run %s in its place\n", step->name,
                step->library ? step->library : "the operators of the manifest");
        count++;
    }
    return count;
}

static int run_once(fp_run *run, const char *from, const char *to) {
    const fp_plan *plan = &fp_the_plan;
    for (int i = 0; i < plan->buffer_count; i++) {
        fp_kind kind = plan->buffers[i].kind;
        if ((kind == FP_INPUT || kind == FP_WEIGHT) && feed(run, i, from)) return 1;
    }
    if (fp_launch(run)) return 1;
    for (int i = 0; i < plan->output_count; i++)
        if (deliver(run, plan->outputs[i], to)) return 1;
    return 0;
}

int main(int count, char **words) {
    if (count != 4) {
        fprintf(stderr, "usage: %s PLAN_FOLDER INPUT_FOLDER OUTPUT_FOLDER\n", words[0]);
        return 2;
    }
    if (has_library_calls()) return 3;
    fp_run *run = fp_open(words[1], NULL, NULL);
    int failed = !run || run_once(run, words[2], words[3]);
    if (failed) fprintf(stderr, "%s\n", fp_error());
    fp_close(run);
    return failed;
}
