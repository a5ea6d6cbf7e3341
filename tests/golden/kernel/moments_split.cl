static inline float lanes_reduce_sum_f32_0(float x, int lane, int team, __local float* shared) {
#if defined(cl_intel_required_subgroup_size) && defined(cl_intel_subgroups)
    float x8 = intel_sub_group_shuffle_xor(x, 8);
    x = x + x8;
    float x4 = intel_sub_group_shuffle_xor(x, 4);
    x = x + x4;
    float x2 = intel_sub_group_shuffle_xor(x, 2);
    x = x + x2;
    float x1 = intel_sub_group_shuffle_xor(x, 1);
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
static inline float lanes_reduce_sum_f32(float x, int lane, int team, __local float* shared) {
#if defined(cl_intel_required_subgroup_size) && defined(cl_intel_subgroups)
    float x8 = intel_sub_group_shuffle_xor(x, 8);
    x = x + x8;
    float x4 = intel_sub_group_shuffle_xor(x, 4);
    x = x + x4;
    float x2 = intel_sub_group_shuffle_xor(x, 2);
    x = x + x2;
    float x1 = intel_sub_group_shuffle_xor(x, 1);
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
__kernel void fused_0(__global const float* restrict in0, __global float* restrict out0, __global float* restrict out1) {
    __local float shared_f32[16];
    const int lane = get_local_id(0);
    const int team = get_local_id(1);
    const int block = (int)get_group_id(0);
    const int part = block;
    const int q = part + team;
    float a0 = 0.0f;
    float a1 = 0.0f;
    for (int base = 0; base < 24093; base += 128) {
        const int stop = base + 128 < 24093 ? base + 128 : 24093;
        float s0 = 0.0f;
        float s1 = 0.0f;
        for (int item = base; item < stop; item++) {
            const int p = lane + item * 16;
            const float v0 = in0[q * 385500 + p];
            const float v1 = exp(v0);
            const float v3 = v1 * v1;
            s0 = v1 + s0;
            s1 = v3 + s1;
        }
        a0 = a0 + s0;
        a1 = a1 + s1;
    }
    {
        const int item = 24093;
        const int p = lane + 385484;
        const float v0 = in0[q * 385500 + p];
        const float v1 = exp(v0);
        const float v3 = v1 * v1;
        a0 = (lane >= 4 ? v1 : 0.0f) + a0;
        a1 = (lane >= 4 ? v3 : 0.0f) + a1;
    }
    a0 = lanes_reduce_sum_f32_0(a0, lane, team, shared_f32);
    a1 = lanes_reduce_sum_f32_0(a1, lane, team, shared_f32);
    const float v2 = a0;
    const float v4 = a1;
    if (lane == 0) {
        out0[q] = v2;
        out1[q] = v4;
    }
}
#if defined(cl_intel_required_subgroup_size) && defined(cl_intel_subgroups)
__attribute__((intel_reqd_sub_group_size(16)))
#endif
__attribute__((reqd_work_group_size(16, 1, 1)))
__kernel void fused(__global const float* restrict in0, __global const float* restrict in1, __global float* restrict out0) {
    __local float shared_f32[16];
    const int lane = get_local_id(0);
    const int team = get_local_id(1);
    const int block = (int)get_group_id(0);
    const int part = block;
    const int q = part + team;
    float a0 = 0.0f;
    float a1 = 0.0f;
    {
        const int item = 0;
        const int p = lane + item * 16;
        if (p < 2) {
            const float v0 = in1[p];
            const float v2 = in0[p];
            a0 = v0 + a0;
            a1 = v2 + a1;
        }
    }
    a0 = lanes_reduce_sum_f32(a0, lane, team, shared_f32);
    a1 = lanes_reduce_sum_f32(a1, lane, team, shared_f32);
    const float v1 = a0;
    const float v3 = a1;
    const float v4 = v3 * v3;
    const float v5 = v1 - v4;
    if (lane == 0) {
        out0[0] = v5;
    }
}
