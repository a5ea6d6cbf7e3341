static inline float max_f32(float a, float b) { return a > b || a != a ? a : b; }
__attribute__((reqd_work_group_size(64, 1, 1)))
__kernel void fused_0(__global const float* restrict in0, __global float* restrict out0) {
    const int lane = get_local_id(0);
    const int team = get_local_id(1);
    const int block = (int)get_group_id(0);
    const int part = block;
    const int q = part;
    const int p = lane;
    if (p < 48) {
        float a0 = -INFINITY;
        for (int r = 0; r < 100000; r++) {
            const float v0 = in0[r * 24 + (p / 24) * 2400000 + p % 24];
            a0 = max_f32(v0, a0);
        }
        const float v1 = a0;
        out0[p] = v1;
    }
}
__attribute__((reqd_work_group_size(32, 1, 1)))
__kernel void fused(__global const float* restrict in0, __global float* restrict out0) {
    const int lane = get_local_id(0);
    const int team = get_local_id(1);
    const int block = (int)get_group_id(0);
    const int part = block;
    const int q = part;
    const int p = lane;
    if (p < 24) {
        float a0 = -INFINITY;
        for (int r = 0; r < 2; r++) {
            const float v0 = in0[r * 24 + p];
            a0 = max_f32(v0, a0);
        }
        const float v1 = a0;
        out0[p] = v1;
    }
}
