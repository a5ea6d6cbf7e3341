static inline float neg_f32(float x) { return fma(x, -1.0f, -0.0f); }
__attribute__((reqd_work_group_size(16, 1, 1)))
__kernel void fused(__global const float* restrict in0, __global const float* restrict in1, __global const float* restrict in2, __global float* restrict out0) {
    const int lane = get_local_id(0);
    const int team = get_local_id(1);
    const int block = (int)get_group_id(0);
    const int part = block;
    for (int turn = 0; turn < 8; turn++) {
        const int q = part * 8 + team + turn * 1;
        #pragma unroll 2
        for (int item = 0; item < 2; item++) {
            const int p = lane + item * 16;
            const float v0 = in0[q * 64 + p];
            const float v1 = in1[(q % 32) * 64 + p];
            const float v2 = v0 * v1;
            const float v3 = in0[q * 64 + p + 32];
            const float v4 = neg_f32(v3);
            const float v5 = in2[(q % 32) * 64 + p];
            const float v6 = v4 * v5;
            const float v7 = v2 + v6;
            const float v8 = in1[(q % 32) * 64 + p + 32];
            const float v9 = v3 * v8;
            const float v10 = in2[(q % 32) * 64 + p + 32];
            const float v11 = v0 * v10;
            const float v12 = v9 + v11;
            out0[q * 64 + p] = v7;
            out0[q * 64 + p + 32] = v12;
        }
    }
}
