static inline float erf_f32(float a) { const float x = a > 3.8325f ? 3.8325f : a < -3.8325f ? -3.8325f : a; const float s = x * x; float p = fma(s, 2.29050659e-4f, 3.40829101e-3f); p = fma(p, s, 5.09556951e-2f); p = fma(p, s, 1.85208322e-1f); p = fma(p, s, 1.12837914f); float q = fma(s, -1.17916030e-7f, 2.35479665e-5f); q = fma(q, s, 1.01796253e-3f); q = fma(q, s, 1.40704702e-2f); q = fma(q, s, 1.10985052e-1f); q = fma(q, s, 4.97469251e-1f); q = fma(q, s, 1.0f); return x * p / q; }
__attribute__((reqd_work_group_size(16, 1, 1)))
__kernel void fused(__global const float* restrict in0, __global const float* restrict in1, __global float* restrict out0) {
    const int lane = get_local_id(0);
    const int team = get_local_id(1);
    const int block = (int)get_group_id(0);
    const int part = block;
    const int q = part / 3 + team;
    #pragma unroll 4
    for (int item = 0; item < 64; item++) {
        const int p = part % 3 * 1024 + lane + item * 16;
        const float v0 = in0[q * 3072 + p];
        const float v1 = in1[p];
        const float v2 = v0 + v1;
        const float v4 = v2 * 0.5f;
        const float v6 = v2 * 0.70710677f;
        const float v7 = erf_f32(v6);
        const float v9 = v7 + 1.0f;
        const float v10 = v4 * v9;
        out0[q * 3072 + p] = v10;
    }
}
