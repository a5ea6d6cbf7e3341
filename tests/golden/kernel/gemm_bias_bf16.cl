static inline ushort bf16_of_f32(float x) { uint b = as_uint(x); return (ushort)(x != x ? 0x7fc0u : (b + 0x7fffu + ((b >> 16) & 1u)) >> 16); }
static inline float f32_of_bf16(ushort x) { return as_float((uint)x << 16); }
__attribute__((reqd_work_group_size(32, 8, 1)))
__kernel void fused(__global const ushort* restrict in0, __global const ushort* restrict in1, __global const ushort* restrict in2, __global ushort* restrict out0) {
    __local float left[2176];
    __local float right[2176];
    const int lane = get_local_id(0);
    const int team = get_local_id(1);
    const int block = (int)get_group_id(0);
    const int part = block;
    const int column0 = part % 3 * 64;
    const int row0 = part / 3 % 2 * 64;
    const int q = part / 6;
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
            if (i < 100) {
                const float v0 = f32_of_bf16(in0[i * 128 + r]);
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
            const float v1 = f32_of_bf16(in1[r * 192 + p]);
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
        if (i < 100) {
            #pragma unroll 2
            for (int x = 0; x < 2; x++) {
                const int p = column0 + x * 32 + lane;
                const float v3 = sums[y][x];
                const float v4 = f32_of_bf16(in2[p]);
                const float v5 = v3 + v4;
                const float v6 = v5 < 0.0f ? 0.0f : v5;
                out0[i * 192 + p] = bf16_of_f32(v6);
            }
        }
    }
}
