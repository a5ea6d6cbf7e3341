static inline float max_f32(float a, float b) { return a > b || a != a ? a : b; }
__attribute__((reqd_work_group_size(64, 1, 1)))
__kernel void fused(__global const float* restrict in0, __global float* restrict out0) {
    const int lane = get_local_id(0);
    const int team = get_local_id(1);
    const int block = (int)get_group_id(0);
    const int part = block;
    const int q = part / 2;
    const int begin = part % 2 * 64;
    const int p = (begin < 36 ? begin : 36) + lane;
    float a0 = -INFINITY;
    for (int r = 0; r < 256; r++) {
        const float v0 = in0[r * 100 + p];
        a0 = max_f32(v0, a0);
    }
    const float v1 = a0;
    float a1 = 0.0f;
    for (int r = 0; r < 256; r++) {
        const float v0 = in0[r * 100 + p];
        const float v2 = v0 - v1;
        const float v3 = exp(v2);
        a1 = v3 + a1;
    }
    const float v4 = a1;
    const float v5 = 1 / v4;
    for (int r = 0; r < 256; r++) {
        const float v0 = in0[r * 100 + p];
        const float v2 = v0 - v1;
        const float v3 = exp(v2);
        const float v6 = v3 * v5;
        out0[r * 100 + p] = v6;
    }
}
