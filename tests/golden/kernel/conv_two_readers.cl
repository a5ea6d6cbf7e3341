__attribute__((reqd_work_group_size(16, 4, 1)))
__kernel void fused(__global const float* restrict in0, __global const float* restrict in1, __global const float* restrict in2, __global const float* restrict in3, __global float* restrict out0, __global float* restrict out1) {
    __local float left[2304];
    __local float right[2304];
    const int lane = get_local_id(0);
    const int team = get_local_id(1);
    const int block = (int)get_group_id(0);
    const int part = block;
    const int column0 = part % 13 * 32;
    const int row0 = part / 13 % 1 * 32;
    const int q = part / 13;
    const int t = team * 16 + lane;
    float sums[8][2] = {{0}};
    for (int base = 0; base < 144; base += 64) {
        #pragma unroll 16
        for (int s = t; s < 2048; s += 64) {
            const int z = s % 64;
            const int e = s / 64;
            const int i = row0 + e;
            const int r = base + z;
            float staged = 0;
            if (r < 144) {
                const float v0 = in1[i * 144 + r];
                staged = v0;
            }
            left[z * 36 + e] = staged;
        }
        #pragma unroll 4
        for (int s = t; s < 2048; s += 64) {
            const int z = s % 64;
            const int e = s / 64;
            const int p = column0 + e;
            const int r = base + z;
            float staged = 0;
            if (p < 392 && r < 144) {
                const float v1 = r / 3 % 3 + (p / 14 % 14) * 2 + -1 >= 0 && r % 3 + (p % 14) * 2 + -1 >= 0 ? (in0[(r / 9) * 784 + (r / 3 % 3) * 28 + r % 3 + (p / 196) * 12544 + (p / 14 % 14) * 56 + (p % 14) * 2 + -29]) : 0;
                staged = v1;
            }
            right[z * 36 + e] = staged;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        #pragma unroll 16
        for (int z = 0; z < 64; z++) {
            float above[8], beside[2];
            #pragma unroll 8
            for (int y = 0; y < 8; y++) {
                above[y] = left[z * 36 + team * 8 + y];
            }
            #pragma unroll 2
            for (int x = 0; x < 2; x++) {
                beside[x] = right[z * 36 + x * 16 + lane];
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
        const float v4 = in2[i];
        const float v6 = in3[i];
        #pragma unroll 2
        for (int x = 0; x < 2; x++) {
            const int p = column0 + x * 16 + lane;
            if (p < 392) {
                const float v3 = sums[y][x];
                const float v5 = v3 * v4;
                const float v7 = v5 + v6;
                const float v8 = v7 < 0.0f ? 0.0f : v7;
                out0[i * 196 + (p / 196) * 6272 + p % 196] = v3;
                out1[i * 196 + (p / 196) * 6272 + p % 196] = v8;
            }
        }
    }
}
