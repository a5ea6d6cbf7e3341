/* A plan as tables, and the few calls that run it. */
#ifndef FUSEPLAN_H
#define FUSEPLAN_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    FP_INPUT,    /* written by the caller before every run */
    FP_WEIGHT,   /* written by the caller once */
    FP_CONSTANT, /* read from data.bin when the plan is opened */
    FP_OUTPUT,   /* read by the caller after a run */
    FP_ARENA     /* lives in the arena at `offset` */
} fp_kind;

typedef struct {
    const char *tensor; /* id in the plan; the file of its bytes is TENSOR.bin */
    fp_kind kind;
    size_t bytes;
    size_t offset; /* in the arena, or in data.bin */
} fp_buffer;

typedef struct {
    const char *name; /* of the kernel in the plan */
    const char *file; /* of a generated kernel; NULL: a call of the host's library */
    const char *entry;
    size_t grid[3];
    size_t block[3];
    size_t shared_bytes;
    const char *library;  /* ONNX model of a library call, where it is known */
    const int *arguments; /* numbers of buffers, in order */
    int count;
} fp_step;

typedef struct {
    const fp_buffer *buffers;
    int buffer_count;
    const fp_step *steps;
    int step_count;
    const int *outputs; /* numbers of buffers that hold the model's outputs */
    int output_count;
    size_t arena_bytes;
    int needs_prepare; /* weights that prepare.onnx makes are the caller's to give */
    const char *build_options;
} fp_plan;

extern const fp_plan fp_the_plan;

typedef struct fp_run fp_run;

/* Runs one library call: reads `step->arguments`, writes the last of them, through
 * fp_read and fp_write. Returns 0 when it worked. */
typedef int (*fp_library)(void *user, fp_run *run, const fp_step *step);

/* Opens a plan whose files lie in a folder. NULL on failure: see fp_error. `library`
 * may be NULL when no step of the plan is a library call. */
fp_run *fp_open(const char *folder, fp_library library, void *user);
int fp_write(fp_run *run, int buffer, const void *from);
int fp_read(fp_run *run, int buffer, void *to);
int fp_launch(fp_run *run);
void fp_close(fp_run *run);
const char *fp_error(void);

#ifdef __cplusplus
}
#endif
#endif
