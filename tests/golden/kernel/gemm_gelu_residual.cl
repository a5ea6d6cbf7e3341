static inline float erf_f32(float a) { const float x = a > 3.8325f ? 3.8325f : a < -3.8325f ? -3.8325f : a; const float s = x * x; float p = fma(s, 2.29050659e-4f, 3.40829101e-3f); p = fma(p, s, 5.09556951e-2f); p = fma(p, s, 1.85208322e-1f); p = fma(p, s, 1.12837914f); float q = fma(s, -1.17916030e-7f, 2.35479665e-5f); q = fma(q, s, 1.01796253e-3f); q = fma(q, s, 1.40704702e-2f); q = fma(q, s, 1.10985052e-1f); q = fma(q, s, 4.97469251e-1f); q = fma(q, s, 1.0f); return x * p / q; }
__attribute__((reqd_work_group_size(32, 8, 1)))
__kernel void fused(__global const float* restrict in0, __global const float* restrict in1, __global const float* restrict in2, __global const float* restrict in3, __global float* restrict out0) {
    __local float left[2176];
    __local float right[2176];
    const int lane = get_local_id(0);
    const int team = get_local_id(1);
    const int block = (int)get_group_id(0);
    const int part = block;
    const int column0 = part % 6 * 64;
    const int row0 = part / 6 % 4 * 64;
    const int q = part / 24;
    const int t = team * 32 + lane;
    float sums[8][2] = {{0}};
    for (int base = 0; base < 128; base += 32) {
        #pragma unroll 8
        for (int s = t; s < 2048; s += 256) {
            const int z = s % 32;
            const int e = s / 32;
            const int i = row0 + e;
            const int r = base + z;
            float staged = 0;
            if (i < 250) {
                const float v0 = in0[i * 128 + r];
                staged = v0;
            }
            left[z * 68 + e] = staged;
        }
        #pragma unroll 8
        for (int s = t; s < 2048; s += 256) {
            const int e = s % 64;
            const int z = s / 64;
            const int p = column0 + e;
            const int r = base + z;
            const float v1 = in1[r * 384 + p];
            right[z * 68 + e] = v1;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        #pragma unroll 16
        for (int z = 0; z < 32; z++) {
            float above[8], beside[2];
            #pragma unroll 8
            for (int y = 0; y < 8; y++) {
                above[y] = left[z * 68 + team * 8 + y];
            }
            #pragma unroll 2
            for (int x = 0; x < 2; x++) {
                beside[x] = right[z * 68 + x * 32 + lane];
            }
            #pragma unroll 8
            for (int y = 0; y < 8; y++) {
                #pragma unroll 2
                for (int x = 0; x < 2; x++) {
                    sums[y][x] += above[y] * beside[x];
                }
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    #pragma unroll 8
    for (int y = 0; y < 8; y++) {
        const int i = row0 + team * 8 + y;
        if (i < 250) {
            #pragma unroll 2
            for (int x = 0; x < 2; x++) {
                const int p = column0 + x * 32 + lane;
                const float v3 = sums[y][x];
                const float v4 = in2[p];
                const float v5 = v3 + v4;
                const float v7 = v5 * 0.5f;
                const float v9 = v5 * 0.70710677f;
                const float v10 = erf_f32(v9);
                const float v12 = v10 + 1.0f;
                const float v13 = v7 * v12;
                const float v14 = in3[i * 384 + p];
                const float v15 = v13 + v14;
                out0[i * 384 + p] = v15;
            }
        }
    }
}
