static inline double max_f64(double a, double b) { return a > b || a != a ? a : b; }
static inline double lanes_reduce_max_f64(double x, int lane, int team, __local double* shared) {
#if defined(cl_intel_required_subgroup_size) && defined(cl_intel_subgroups)
    double x8 = intel_sub_group_shuffle_xor(x, 8);
    x = max_f64(x, x8);
    double x4 = intel_sub_group_shuffle_xor(x, 4);
    x = max_f64(x, x4);
    double x2 = intel_sub_group_shuffle_xor(x, 2);
    x = max_f64(x, x2);
    double x1 = intel_sub_group_shuffle_xor(x, 1);
    x = max_f64(x, x1);
    return x;
#else
    int i = team * 16 + lane;
    shared[i] = x;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int d = 8; d > 0; d /= 2) {
        if (lane < d) shared[i] = max_f64(shared[i], shared[i + d]);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    x = shared[team * 16];
    barrier(CLK_LOCAL_MEM_FENCE);
    return x;
#endif
}
static inline double lanes_reduce_sum_f64(double x, int lane, int team, __local double* shared) {
#if defined(cl_intel_required_subgroup_size) && defined(cl_intel_subgroups)
    double x8 = intel_sub_group_shuffle_xor(x, 8);
    x = x + x8;
    double x4 = intel_sub_group_shuffle_xor(x, 4);
    x = x + x4;
    double x2 = intel_sub_group_shuffle_xor(x, 2);
    x = x + x2;
    double x1 = intel_sub_group_shuffle_xor(x, 1);
    x = x + x1;
    return x;
#else
    int i = team * 16 + lane;
    shared[i] = x;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int d = 8; d > 0; d /= 2) {
        if (lane < d) shared[i] = shared[i] + shared[i + d];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    x = shared[team * 16];
    barrier(CLK_LOCAL_MEM_FENCE);
    return x;
#endif
}
#if defined(cl_intel_required_subgroup_size) && defined(cl_intel_subgroups)
__attribute__((intel_reqd_sub_group_size(16)))
#endif
__attribute__((reqd_work_group_size(16, 1, 1)))
__kernel void fused(__global const double* restrict in0, __global double* restrict out0) {
    __local double shared_f64[16];
    const int lane = get_local_id(0);
    const int team = get_local_id(1);
    const int block = (int)get_group_id(0);
    const int part = block;
    const int q = part + team;
    double a0 = -(double)INFINITY;
    double a1 = 0.0;
    for (int base = 0; base < 3120; base += 128) {
        const int stop = base + 128 < 3120 ? base + 128 : 3120;
        double s0 = -(double)INFINITY;
        double s0_1 = -(double)INFINITY;
        double s0_2 = -(double)INFINITY;
        double s0_3 = -(double)INFINITY;
        double s0_4 = -(double)INFINITY;
        double s0_5 = -(double)INFINITY;
        double s0_6 = -(double)INFINITY;
        double s0_7 = -(double)INFINITY;
        for (int item = base; item < stop; item += 8) {
            {
                const int p = lane + item * 16;
                const double v0 = in0[q * 50000 + p];
                s0 = max_f64(v0, s0);
            }
            {
                const int p = lane + (item + 1) * 16;
                const double v0 = in0[q * 50000 + p];
                s0_1 = max_f64(v0, s0_1);
            }
            {
                const int p = lane + (item + 2) * 16;
                const double v0 = in0[q * 50000 + p];
                s0_2 = max_f64(v0, s0_2);
            }
            {
                const int p = lane + (item + 3) * 16;
                const double v0 = in0[q * 50000 + p];
                s0_3 = max_f64(v0, s0_3);
            }
            {
                const int p = lane + (item + 4) * 16;
                const double v0 = in0[q * 50000 + p];
                s0_4 = max_f64(v0, s0_4);
            }
            {
                const int p = lane + (item + 5) * 16;
                const double v0 = in0[q * 50000 + p];
                s0_5 = max_f64(v0, s0_5);
            }
            {
                const int p = lane + (item + 6) * 16;
                const double v0 = in0[q * 50000 + p];
                s0_6 = max_f64(v0, s0_6);
            }
            {
                const int p = lane + (item + 7) * 16;
                const double v0 = in0[q * 50000 + p];
                s0_7 = max_f64(v0, s0_7);
            }
        }
        s0 = max_f64(s0_1, s0);
        s0 = max_f64(s0_2, s0);
        s0 = max_f64(s0_3, s0);
        s0 = max_f64(s0_4, s0);
        s0 = max_f64(s0_5, s0);
        s0 = max_f64(s0_6, s0);
        s0 = max_f64(s0_7, s0);
        const double greatest = max_f64(s0, a0);
        const double v1 = greatest == -(double)INFINITY ? 0.0 : greatest;
        double s1 = 0.0;
        for (int item = base; item < stop; item++) {
            const int p = lane + item * 16;
            const double v0 = in0[q * 50000 + p];
            const double v2 = v0 - v1;
            const double v3 = exp(v2);
            s1 = v3 + s1;
        }
        a1 = a1 * exp(a0 - v1) + s1;
        a0 = greatest;
    }
    {
        const int base = 3120;
        const int stop = 3125;
        double s0 = -(double)INFINITY;
        for (int item = base; item < stop; item++) {
            const int p = lane + item * 16;
            const double v0 = in0[q * 50000 + p];
            s0 = max_f64(v0, s0);
        }
        const double greatest = max_f64(s0, a0);
        const double v1 = greatest == -(double)INFINITY ? 0.0 : greatest;
        double s1 = 0.0;
        for (int item = base; item < stop; item++) {
            const int p = lane + item * 16;
            const double v0 = in0[q * 50000 + p];
            const double v2 = v0 - v1;
            const double v3 = exp(v2);
            s1 = v3 + s1;
        }
        a1 = a1 * exp(a0 - v1) + s1;
        a0 = greatest;
    }
    const double own = a0;
    a0 = lanes_reduce_max_f64(a0, lane, team, shared_f64);
    const double v1 = a0;
    a1 = a1 * exp(own - v1);
    a1 = lanes_reduce_sum_f64(a1, lane, team, shared_f64);
    const double v4 = a1;
    const double v5 = 1 / v4;
    for (int item = 0; item < 3125; item++) {
        const int p = lane + item * 16;
        const double v0 = in0[q * 50000 + p];
        const double v2 = v0 - v1;
        const double v3 = exp(v2);
        const double v6 = v3 * v5;
        out0[q * 50000 + p] = v6;
    }
}
