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
__kernel void fused(__global const float* restrict in0, __global const float* restrict in1, __global const float* restrict in2, __global const float* restrict in3, __global float* restrict out0, __global float* restrict out1) {
    __local float shared_f32[16];
    const int lane = get_local_id(0);
    const int team = get_local_id(1);
    const int block = (int)get_group_id(0);
    const int part = block;
    for (int turn = 0; turn < 8; turn++) {
        const int q = part * 8 + team + turn * 1;
        float k2[48];
        float k6[48];
        float a0 = 0.0f;
        #pragma unroll 48
        for (int item = 0; item < 48; item++) {
            const int p = lane + item * 16;
            const float v0 = in0[q * 768 + p];
            const float v1 = in1[q * 768 + p];
            const float v2 = v0 + v1;
            a0 = v2 + a0;
            k2[item] = v2;
            out0[q * 768 + p] = v2;
        }
        a0 = lanes_reduce_sum_f32(a0, lane, team, shared_f32);
        const float v3 = a0;
        const float v5 = v3 / 768.0f;
        float a1 = 0.0f;
        #pragma unroll 48
        for (int item = 0; item < 48; item++) {
            const int p = lane + item * 16;
            const float v2 = k2[item];
            const float v6 = v2 - v5;
            const float v7 = v6 * v6;
            a1 = v7 + a1;
            k6[item] = v6;
        }
        a1 = lanes_reduce_sum_f32(a1, lane, team, shared_f32);
        const float v8 = a1;
        const float v9 = v8 / 768.0f;
        const float v11 = v9 + 1e-05f;
        const float v12 = sqrt(v11);
        const float v13 = 1 / v12;
        #pragma unroll 48
        for (int item = 0; item < 48; item++) {
            const int p = lane + item * 16;
            const float v6 = k6[item];
            const float v14 = v6 * v13;
            const float v15 = in2[p];
            const float v16 = v14 * v15;
            const float v17 = in3[p];
            const float v18 = v16 + v17;
            out1[q * 768 + p] = v18;
        }
    }
}
