extern "C" __global__ void __launch_bounds__(128)
fused(const float* __restrict__ in0, const float* __restrict__ in1, const float* __restrict__ in2, const float* __restrict__ in3, float* __restrict__ out0, float* __restrict__ out1) {
    __shared__ __align__(16) float left[640];
    __shared__ __align__(16) float right[1152];
    const int lane = threadIdx.x;
    const int team = threadIdx.y;
    const int block = (int)blockIdx.x;
    const int part = block;
    const int column0 = part % 13 * 32;
    const int row0 = part / 13 % 2 * 16;
    const int q = part / 26;
    const int t = team * 16 + lane;
    float sums[2][2] = {{0}};
    for (int base = 0; base < 144; base += 32) {
        #pragma unroll 4
        for (int s = t; s < 512; s += 128) {
            const int z = s % 32;
            const int e = s / 32;
            const int i = row0 + e;
            const int r = base + z;
            float staged = 0;
            if (r < 144) {
                const float v0 = in1[i * 144 + r];
                staged = v0;
            }
            left[z * 20 + e] = staged;
        }
        #pragma unroll 4
        for (int s = t; s < 1024; s += 128) {
            const int z = s % 32;
            const int e = s / 32;
            const int p = column0 + e;
            const int r = base + z;
            float staged = 0;
            if (p < 392 && r < 144) {
                const float v1 = r / 3 % 3 + (p / 14 % 14) * 2 + -1 >= 0 && r % 3 + (p % 14) * 2 + -1 >= 0 ? (in0[(r / 9) * 784 + (r / 3 % 3) * 28 + r % 3 + (p / 196) * 12544 + (p / 14 % 14) * 56 + (p % 14) * 2 + -29]) : 0;
                staged = v1;
            }
            right[z * 36 + e] = staged;
        }
        __syncthreads();
        #pragma unroll 16
        for (int z = 0; z < 32; z++) {
            float above[2], beside[2];
            #pragma unroll 2
            for (int y = 0; y < 2; y++) {
                above[y] = left[z * 20 + team * 2 + y];
            }
            #pragma unroll 2
            for (int x = 0; x < 2; x++) {
                beside[x] = right[z * 36 + x * 16 + lane];
            }
            #pragma unroll 2
            for (int y = 0; y < 2; y++) {
                #pragma unroll 2
                for (int x = 0; x < 2; x++) {
                    sums[y][x] += above[y] * beside[x];
                }
            }
        }
        __syncthreads();
    }
    #pragma unroll 2
    for (int y = 0; y < 2; y++) {
        const int i = row0 + team * 2 + y;
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
