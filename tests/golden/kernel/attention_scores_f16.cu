static __device__ __forceinline__ unsigned short f16_of_f32(float x) { unsigned short y; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x)); return y; }
static __device__ __forceinline__ float f32_of_f16(unsigned short x) { float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x)); return y; }
extern "C" __global__ void __launch_bounds__(128)
fused(const unsigned short* __restrict__ in0, const unsigned short* __restrict__ in1, unsigned short* __restrict__ out0) {
    __shared__ __align__(16) float left[640];
    __shared__ __align__(16) float right[1152];
    const int lane = threadIdx.x;
    const int team = threadIdx.y;
    const int block = (int)blockIdx.x;
    const int part = block;
    const int column0 = part % 2 * 32;
    const int row0 = part / 2 % 4 * 16;
    const int q = part / 8;
    const int t = team * 16 + lane;
    float sums[2][2] = {{0}};
    for (int base = 0; base < 32; base += 32) {
        #pragma unroll 4
        for (int s = t; s < 512; s += 128) {
            const int z = s % 32;
            const int e = s / 32;
            const int i = row0 + e;
            const int r = base + z;
            const float v0 = f32_of_f16(in0[(q / 4) * 8192 + (q % 4) * 32 + i * 128 + r]);
            left[z * 20 + e] = v0;
        }
        #pragma unroll 8
        for (int s = t; s < 1024; s += 128) {
            const int z = s % 32;
            const int e = s / 32;
            const int p = column0 + e;
            const int r = base + z;
            const float v1 = f32_of_f16(in1[(q / 4) * 8192 + (q % 4) * 32 + r + p * 128]);
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
        #pragma unroll 2
        for (int x = 0; x < 2; x++) {
            const int p = column0 + x * 16 + lane;
            const float v3 = sums[y][x];
            const float v5 = v3 * 0.125f;
            out0[q * 4096 + i * 64 + p] = f16_of_f32(v5);
        }
    }
}
