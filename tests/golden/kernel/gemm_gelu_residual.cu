extern "C" __global__ void __launch_bounds__(128)
fused(const float* __restrict__ in0, const float* __restrict__ in1, const float* __restrict__ in2, const float* __restrict__ in3, float* __restrict__ out0) {
    __shared__ __align__(16) float left[640];
    __shared__ __align__(16) float right[1152];
    const int lane = threadIdx.x;
    const int team = threadIdx.y;
    const int block = (int)blockIdx.x;
    const int part = block;
    const int column0 = part % 12 * 32;
    const int row0 = part / 12 % 16 * 16;
    const int q = part / 192;
    const int t = team * 16 + lane;
    float sums[2][2] = {{0}};
    for (int base = 0; base < 128; base += 32) {
        #pragma unroll 4
        for (int s = t; s < 512; s += 128) {
            const int z = s % 32;
            const int e = s / 32;
            const int i = row0 + e;
            const int r = base + z;
            float staged = 0;
            if (i < 250) {
                const float v0 = in0[i * 128 + r];
                staged = v0;
            }
            left[z * 20 + e] = staged;
        }
        #pragma unroll 8
        for (int s = t; s < 1024; s += 128) {
            const int e = s % 32;
            const int z = s / 32;
            const int p = column0 + e;
            const int r = base + z;
            const float v1 = in1[r * 384 + p];
            right[z * 36 + e] = v1;
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
        if (i < 250) {
            #pragma unroll 2
            for (int x = 0; x < 2; x++) {
                const int p = column0 + x * 16 + lane;
                const float v3 = sums[y][x];
                const float v4 = in2[p];
                const float v5 = v3 + v4;
                const float v7 = v5 * 0.5f;
                const float v9 = v5 * 0.70710677f;
                const float v10 = erff(v9);
                const float v12 = v10 + 1.0f;
                const float v13 = v7 * v12;
                const float v14 = in3[i * 384 + p];
                const float v15 = v13 + v14;
                out0[i * 384 + p] = v15;
            }
        }
    }
}
