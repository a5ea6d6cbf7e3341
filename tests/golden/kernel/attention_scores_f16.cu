static __device__ __forceinline__ unsigned short f16_of_f32(float x) { unsigned short y; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x)); return y; }
static __device__ __forceinline__ void mma_f16(float* c, const unsigned* a, const unsigned* b) { asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])); }
extern "C" __global__ void __launch_bounds__(64)
fused(const unsigned short* __restrict__ in0, const unsigned short* __restrict__ in1, unsigned short* __restrict__ out0) {
    __shared__ __align__(16) unsigned short left[1280];
    __shared__ __align__(16) unsigned short right[1280];
    const int lane = threadIdx.x;
    const int team = threadIdx.y;
    const int block = (int)blockIdx.x;
    const int part = block;
    const int column0 = part % 2 * 32;
    const int row0 = part / 2 % 2 * 32;
    const int q = part / 4;
    const int t = team * 32 + lane;
    const int group = lane / 4;
    const int member = lane % 4;
    float sums[1][4][4] = {{{0}}};
    for (int base = 0; base < 32; base += 32) {
        #pragma unroll 2
        for (int s = t; s < 128; s += 64) {
            const int z = s % 4 * 8;
            const int e = s / 4;
            const int i = row0 + e;
            const int r = base + z;
            uint4 staged = {0, 0, 0, 0};
            staged = *(const uint4*)(in0 + (q / 4) * 8192 + (q % 4) * 32 + i * 128 + r);
            *(uint4*)(left + e * 40 + z) = staged;
        }
        #pragma unroll 2
        for (int s = t; s < 128; s += 64) {
            const int z = s % 4 * 8;
            const int e = s / 4;
            const int p = column0 + e;
            const int r = base + z;
            uint4 staged = {0, 0, 0, 0};
            staged = *(const uint4*)(in1 + (q / 4) * 8192 + (q % 4) * 32 + r + p * 128);
            *(uint4*)(right + e * 40 + z) = staged;
        }
        __syncthreads();
        #pragma unroll 2
        for (int z = 0; z < 2; z++) {
            unsigned above[1][4];
            for (int y = 0; y < 1; y++) {
                above[y][0] = *(const unsigned*)(left + (team * 16 + y * 16 + group + 0) * 40 + z * 16 + member * 2 + 0);
                above[y][1] = *(const unsigned*)(left + (team * 16 + y * 16 + group + 8) * 40 + z * 16 + member * 2 + 0);
                above[y][2] = *(const unsigned*)(left + (team * 16 + y * 16 + group + 0) * 40 + z * 16 + member * 2 + 8);
                above[y][3] = *(const unsigned*)(left + (team * 16 + y * 16 + group + 8) * 40 + z * 16 + member * 2 + 8);
            }
            #pragma unroll 4
            for (int x = 0; x < 4; x++) {
                unsigned beside[2];
                beside[0] = *(const unsigned*)(right + (x * 8 + group) * 40 + z * 16 + member * 2 + 0);
                beside[1] = *(const unsigned*)(right + (x * 8 + group) * 40 + z * 16 + member * 2 + 8);
                for (int y = 0; y < 1; y++) {
                    mma_f16(sums[y][x], above[y], beside);
                }
            }
        }
        __syncthreads();
    }
    #pragma unroll 2
    for (int y = 0; y < 2; y++) {
        const int i = row0 + team * 16 + y * 8 + group;
        #pragma unroll 8
        for (int x = 0; x < 8; x++) {
            const int p = column0 + x / 2 * 8 + member * 2 + x % 2;
            const float v3 = sums[y / 2][x / 2][y % 2 * 2 + x % 2];
            const float v5 = v3 * 0.125f;
            out0[q * 4096 + i * 64 + p] = f16_of_f32(v5);
        }
    }
}
