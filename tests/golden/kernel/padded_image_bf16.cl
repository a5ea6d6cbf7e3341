static inline ushort bf16_of_f32(float x) { uint b = as_uint(x); return (ushort)(x != x ? 0x7fc0u : (b + 0x7fffu + ((b >> 16) & 1u)) >> 16); }
static inline float f32_of_bf16(ushort x) { return as_float((uint)x << 16); }
__attribute__((reqd_work_group_size(64, 1, 1)))
__kernel void fused(__global const ushort* restrict in0, __global ushort* restrict out0) {
    const int lane = get_local_id(0);
    const int team = get_local_id(1);
    const int block = (int)get_group_id(0);
    const int part = block;
    const int q = part + team;
    for (int item = 0; item < 1; item++) {
        const int p = lane + item * 64;
        const float v1 = p / 11 + -1 >= 0 && p / 11 + -1 < 9 && p % 11 + -1 >= 0 && p % 11 + -1 < 9 ? (f32_of_bf16(in0[q * 81 + (p / 11) * 9 + p % 11 + -10])) : 0;
        const float v2 = v1 < 0.0f ? 0.0f : v1;
        const float v3 = p / 11 + -1 >= 0 && p / 11 + -1 < 9 && p % 11 + -1 >= 0 && p % 11 + -1 < 9 ? v2 : 0.0f;
        out0[q * 121 + p] = bf16_of_f32(v3);
    }
    {
        const int p = lane + 57;
        const float v1 = p / 11 + -1 >= 0 && p / 11 + -1 < 9 && p % 11 + -1 >= 0 && p % 11 + -1 < 9 ? (f32_of_bf16(in0[q * 81 + (p / 11) * 9 + p % 11 + -10])) : 0;
        const float v2 = v1 < 0.0f ? 0.0f : v1;
        const float v3 = p / 11 + -1 >= 0 && p / 11 + -1 < 9 && p % 11 + -1 >= 0 && p % 11 + -1 < 9 ? v2 : 0.0f;
        out0[q * 121 + p] = bf16_of_f32(v3);
    }
}
