static inline ushort bf16_of_f32(float x) { uint b = as_uint(x); return (ushort)(x != x ? 0x7fc0u : (b + 0x7fffu + ((b >> 16) & 1u)) >> 16); }
static inline float f32_of_bf16(ushort x) { return as_float((uint)x << 16); }
__attribute__((reqd_work_group_size(64, 1, 1)))
__kernel void fused(__global const ushort* restrict in0, __global const ushort* restrict in1, __global ushort* restrict out0) {
    const int lane = get_local_id(0);
    const int team = get_local_id(1);
    const int block = (int)get_group_id(0);
    const int part = block;
    const int q = part / 2;
    const int begin = part % 2 * 64;
    const int p = (begin < 32 ? begin : 32) + lane;
    float a0 = 0.0f;
    for (int base = 0; base < 500; base += 128) {
        const int stop = base + 128 < 500 ? base + 128 : 500;
        float s0 = 0.0f;
        for (int r = base + 0; r < stop; r++) {
            const float v0 = f32_of_bf16(in0[r]);
            const float v1 = f32_of_bf16(in1[r * 96 + p]);
            const float v2 = v0 * v1;
            s0 = v2 + s0;
        }
        a0 = a0 + s0;
    }
    const float v3 = a0;
    const float v4 = 1.0f / (1.0f + (exp((0.0f - v3))));
    out0[p] = bf16_of_f32(v4);
}
