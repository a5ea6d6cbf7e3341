static inline float max_f32(float a, float b) { return a > b || a != a ? a : b; }
static inline float lanes_reduce_max_f32(float x, int lane, int team, __local float* shared) {
#if defined(cl_intel_required_subgroup_size) && defined(cl_intel_subgroups)
    float x8 = intel_sub_group_shuffle_xor(x, 8);
    x = max_f32(x, x8);
    float x4 = intel_sub_group_shuffle_xor(x, 4);
    x = max_f32(x, x4);
    float x2 = intel_sub_group_shuffle_xor(x, 2);
    x = max_f32(x, x2);
    float x1 = intel_sub_group_shuffle_xor(x, 1);
    x = max_f32(x, x1);
    return x;
#else
    int i = team * 16 + lane;
    shared[i] = x;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int d = 8; d > 0; d /= 2) {
        if (lane < d) shared[i] = max_f32(shared[i], shared[i + d]);
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
__kernel void fused(__global const float* restrict in0, __global float* restrict out0) {
    __local float shared_f32[16];
    const int lane = get_local_id(0);
    const int team = get_local_id(1);
    const int block = (int)get_group_id(0);
    const int part = block;
    for (int turn = 0; turn < 8; turn++) {
        const int wanted = part * 8 + team + turn * 1;
        const bool active = wanted <= 99;
        const int q = active ? wanted : 99;
        float k0[9];
        float k3[9];
        float a0 = -INFINITY;
        #pragma unroll 8
        for (int item = 0; item < 8; item++) {
            const int p = lane + item * 16;
            const float v0 = in0[q * 130 + p];
            a0 = max_f32(v0, a0);
            k0[item] = v0;
        }
        {
            const int item = 8;
            const int p = lane + 114;
            const float v0 = in0[q * 130 + p];
            a0 = max_f32((lane >= 14 ? v0 : -INFINITY), a0);
            k0[item] = v0;
        }
        a0 = lanes_reduce_max_f32(a0, lane, team, shared_f32);
        const float v1 = a0;
        float a1 = 0.0f;
        #pragma unroll 8
        for (int item = 0; item < 8; item++) {
            const int p = lane + item * 16;
            const float v0 = k0[item];
            const float v2 = v0 - v1;
            const float v3 = exp(v2);
            a1 = v3 + a1;
            k3[item] = v3;
        }
        {
            const int item = 8;
            const int p = lane + 114;
            const float v0 = k0[item];
            const float v2 = v0 - v1;
            const float v3 = exp(v2);
            a1 = (lane >= 14 ? v3 : 0.0f) + a1;
            k3[item] = v3;
        }
        a1 = lanes_reduce_sum_f32(a1, lane, team, shared_f32);
        const float v4 = a1;
        const float v5 = 1 / v4;
        #pragma unroll 8
        for (int item = 0; item < 8; item++) {
            const int p = lane + item * 16;
            const float v3 = k3[item];
            const float v6 = v3 * v5;
            if (active) {
                out0[q * 130 + p] = v6;
            }
        }
        {
            const int item = 8;
            const int p = lane + 114;
            const float v3 = k3[item];
            const float v6 = v3 * v5;
            if (active) {
                out0[q * 130 + p] = v6;
            }
        }
    }
}
