__attribute__((reqd_work_group_size(32, 8, 1)))
__kernel void fused(__global const half* restrict in0, __global const half* restrict in1, __global half* restrict out0) {
    __local float left[2176];
    __local float right[2176];
    const int lane = get_local_id(0);
    const int team = get_local_id(1);
    const int block = (int)get_group_id(0);
    const int part = block;
    const int column0 = part % 1 * 64;
    const int row0 = part / 1 % 1 * 64;
    const int q = part / 1;
    const int t = team * 32 + lane;
    float sums[8][2] = {{0}};
    for (int base = 0; base < 32; base += 32) {
        #pragma unroll 8
        for (int s = t; s < 2048; s += 256) {
            const int z = s % 32;
            const int e = s / 32;
            const int i = row0 + e;
            const int r = base + z;
            const float v0 = vload_half((q / 4) * 8192 + (q % 4) * 32 + i * 128 + r, in0);
            left[z * 68 + e] = v0;
        }
        #pragma unroll 8
        for (int s = t; s < 2048; s += 256) {
            const int z = s % 32;
            const int e = s / 32;
            const int p = column0 + e;
            const int r = base + z;
            const float v1 = vload_half((q / 4) * 8192 + (q % 4) * 32 + r + p * 128, in1);
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
        #pragma unroll 2
        for (int x = 0; x < 2; x++) {
            const int p = column0 + x * 32 + lane;
            const float v3 = sums[y][x];
            const float v5 = v3 * 0.125f;
            vstore_half(v5, q * 4096 + i * 64 + p, out0);
        }
    }
}
