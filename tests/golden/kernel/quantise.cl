static inline float max_f32(float a, float b) { return a > b || a != a ? a : b; }
static inline float min_f32(float a, float b) { return a < b || a != a ? a : b; }
__attribute__((reqd_work_group_size(16, 1, 1)))
__kernel void fused(__global const float* restrict in0, __global char* restrict out0) {
    const int lane = get_local_id(0);
    const int team = get_local_id(1);
    const int block = (int)get_group_id(0);
    const int part = block;
    const int q = part / 16 + team;
    #pragma unroll 4
    for (int item = 0; item < 12; item++) {
        const int p = part % 16 * 192 + lane + item * 16;
        const float v0 = in0[p];
        const float v2 = v0 * 12.5f;
        const float v3 = rint(v2);
        const float v5 = min_f32(v3, 127.0f);
        const float v7 = max_f32(v5, (-128.0f));
        const char v8 = (char)(int)v7;
        out0[p] = v8;
    }
}
