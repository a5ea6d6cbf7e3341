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
__kernel void fused(__global const float* restrict in0, __global const float* restrict in1, __global const float* restrict in2, __global float* restrict out0) {
    __local float shared_f32[16];
    const int lane = get_local_id(0);
    const int team = get_local_id(1);
    const int block = (int)get_group_id(0);
    const int part = block;
    for (int turn = 0; turn < 2; turn++) {
        const int q = part * 2 + team + turn * 1;
        float k0[64];
        float k5[64];
        float a0 = 0.0f;
        for (int r = 0; r < 4; r++) {
            #pragma unroll 16
            for (int item = 0; item < 16; item++) {
                const int p = lane + item * 16;
                const float v0 = in0[q * 1024 + r * 256 + p];
                a0 = v0 + a0;
                k0[r * 16 + item] = v0;
            }
        }
        a0 = lanes_reduce_sum_f32(a0, lane, team, shared_f32);
        const float v1 = a0;
        const float v4 = v1 * 0.0009765625f;
        float a1 = 0.0f;
        for (int r = 0; r < 4; r++) {
            #pragma unroll 16
            for (int item = 0; item < 16; item++) {
                const int p = lane + item * 16;
                const float v0 = k0[r * 16 + item];
                const float v5 = v0 - v4;
                const float v6 = v5 * v5;
                a1 = v6 + a1;
                k5[r * 16 + item] = v5;
            }
        }
        a1 = lanes_reduce_sum_f32(a1, lane, team, shared_f32);
        const float v7 = a1;
        const float v8 = v7 * 0.0009765625f;
        const float v10 = v8 + 1e-05f;
        const float v11 = sqrt(v10);
        const float v12 = 1 / v11;
        for (int r = 0; r < 4; r++) {
            const float v14 = in1[(q % 8) * 4 + r];
            const float v16 = in2[(q % 8) * 4 + r];
            #pragma unroll 16
            for (int item = 0; item < 16; item++) {
                const int p = lane + item * 16;
                const float v5 = k5[r * 16 + item];
                const float v13 = v5 * v12;
                const float v15 = v13 * v14;
                const float v17 = v15 + v16;
                const float v18 = 1.0f / (1.0f + (exp((0.0f - v17))));
                const float v19 = v17 * v18;
                out0[q * 1024 + r * 256 + p] = v19;
            }
        }
    }
}
