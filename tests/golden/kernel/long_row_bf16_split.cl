static inline ushort bf16_of_f32(float x) { uint b = as_uint(x); return (ushort)(x != x ? 0x7fc0u : (b + 0x7fffu + ((b >> 16) & 1u)) >> 16); }
static inline float f32_of_bf16(ushort x) { return as_float((uint)x << 16); }
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
__kernel void fused_0(__global const ushort* restrict in0, __global float* restrict out0) {
    __local float shared_f32[16];
    const int lane = get_local_id(0);
    const int team = get_local_id(1);
    const int block = (int)get_group_id(0);
    const int part = block;
    const int q = part + team;
    float a0 = 0.0f;
    for (int base = 0; base < 3128; base += 128) {
        const int stop = base + 128 < 3128 ? base + 128 : 3128;
        float s0 = 0.0f;
        for (int item = base; item < stop; item++) {
            const int p = lane + item * 16;
            const float v1 = q * 50048 + p < 100003 ? (f32_of_bf16(in0[q * 50048 + p])) : 0;
            const float v2 = q * 50048 + p < 100003 ? v1 : 0.0f;
            s0 = v2 + s0;
        }
        a0 = a0 + s0;
    }
    a0 = lanes_reduce_sum_f32_0(a0, lane, team, shared_f32);
    const float v3 = a0;
    if (lane == 0) {
        out0[q] = v3;
    }
}
#if defined(cl_intel_required_subgroup_size) && defined(cl_intel_subgroups)
__attribute__((intel_reqd_sub_group_size(16)))
#endif
__attribute__((reqd_work_group_size(16, 1, 1)))
__kernel void fused(__global const float* restrict in0, __global ushort* restrict out0) {
    __local float shared_f32[16];
    const int lane = get_local_id(0);
    const int team = get_local_id(1);
    const int block = (int)get_group_id(0);
    const int part = block;
    const int q = part + team;
    float a0 = 0.0f;
    {
        const int item = 0;
        const int p = lane + item * 16;
        if (p < 2) {
            const float v0 = in0[p];
            a0 = v0 + a0;
        }
    }
    a0 = lanes_reduce_sum_f32(a0, lane, team, shared_f32);
    const float v1 = a0;
    const float v3 = v1 * 9.953976e-06f;
    if (lane == 0) {
        out0[0] = bf16_of_f32(v3);
    }
}
